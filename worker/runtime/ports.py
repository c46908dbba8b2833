"""The only ways out of the runtime: run a script, sleep, spawn, ask the time.

Production passes Redis and asyncio; the simulator passes a seeded scheduler. A source test forbids every
other way, because it cannot be retrofitted.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from world_redis.scripts import Caller, ScriptCall


class Ports(Protocol):
    """What the runtime may do to the outside."""

    async def call(self, call: ScriptCall) -> list[Any]:
        """Run a script on the store."""

    def server(self) -> str:
        """run_id of the server spoken to; another one means that what a body knows may be lost."""

    def now(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""

    def chance(self) -> float:
        """A random number in 0..1."""

    def entropy(self, size: int) -> bytes: ...

    async def sleep(self, seconds: float) -> None: ...

    async def within(self, waiting: Awaitable[Any], seconds: float) -> bool:
        """Wait for it, but no longer; False when the time was over (and it was cancelled)."""

    def spawn(self, job: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]: ...


class World(Caller, Protocol):
    @property
    def server(self) -> str: ...


@dataclass(slots=True)
class AsyncPorts:
    """Redis and asyncio."""

    world: World
    on_call: Callable[[str], None] = lambda script: None  # told the name of every script run

    def call(self, call: ScriptCall) -> Coroutine[Any, Any, list[Any]]:
        self.on_call(call.script)
        return self.world(call)

    def server(self) -> str:
        return self.world.server

    now = staticmethod(time.monotonic)
    chance = staticmethod(random.random)
    entropy = staticmethod(os.urandom)
    sleep = staticmethod(asyncio.sleep)

    async def within(self, waiting: Awaitable[Any], seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):  # unlike wait_for no task of its own: fewer turns to wake up
                await waiting
        except TimeoutError:
            return False
        return True

    def spawn(self, job: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(job, name=name)
