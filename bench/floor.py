"""The floor: the transition script of one inline sequential step, called bare over redis-py's asyncio client.
The link floor: the same over our own link.

Nothing is timed but the client library's call: arguments are made and replies are unpacked outside. The
transitions are real ones on a real run, with records of the size a trivial step has, so the server does
what it does for a worker.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis

from worker.core.records import StepCreated, pack
from world_redis.events import START, EventType, Position
from world_redis.ids import new_mark, new_run_id
from world_redis.link import Link
from world_redis.log import Log
from world_redis.messages import Held, RunContext, RunMessage
from world_redis.queue import Queue
from world_redis.runs import Runs
from world_redis.scripts import SCRIPTS, ScriptCall, arguments, packed_command, unpack_reply
from world_redis.transition import Decision, Epoch, Fact, Reply, Transition
from world_redis.world import RedisWorld

Send = Callable[..., Awaitable[Any]]

_STEP = pack(StepCreated("stamp", b'{"label":"0123456789"}'))
_RESULT = b"null"


class Chain:
    """A run whose sequential steps are recorded, one transition each, over any way to call a server."""

    def __init__(self, world: RedisWorld, send: Send) -> None:
        self._world, self._send = world, send
        self._log = Log(self._timed, "bench")
        self._held: Held | None = None
        self._steps, self._seen = 0, 0
        self._position: Position = START
        self._epoch: Epoch | None = None
        self.run_id = new_run_id(0)
        self.seconds: list[float] = []  # of the calls alone

    async def begin(self) -> None:
        """Start a run, take it and start its first step."""
        about = RunContext("floor", 1, 1, "default", round(time.time() * 1000), self.run_id)
        message = RunMessage(about, os.urandom(16), b"{}", new_mark())
        await Runs(self._world).start(self.run_id, message, b"{}")
        taken = await Queue(self._world, "bench").take(0, ["default"], runs=1, steps=0, empty=True)
        self._held = taken.deliveries[0].held
        self._seen = 1
        await self._append([], [Decision(EventType.RUN_STARTED), *self._next()])
        self.seconds.clear()

    async def step(self) -> None:
        """The end of a step and the start of the next."""
        fact = Fact(EventType.STEP_COMPLETED, f"s{self._steps}", _RESULT, epoch=self._epoch)
        await self._append([fact], self._next())

    def _next(self) -> list[Decision]:
        self._steps += 1
        id = f"s{self._steps}"
        return [
            Decision(EventType.STEP_CREATED, id, _STEP),
            Decision(EventType.STEP_STARTED, id, mode="inline"),
        ]

    async def _append(self, facts: list[Fact], decisions: list[Decision]) -> None:
        reply: Reply = await self._log.append(
            Transition(
                self.run_id,
                new_mark(),
                self._held,
                self._steps,
                seen=self._seen,
                position=self._position,
                advanced=bool(facts),
                facts=facts,
                decisions=decisions,
            ),
            queue="default",
        )
        if reply.answer != "ok":
            raise RuntimeError(f"the floor's transition was answered {reply.answer}")
        self._seen, self._position = reply.head, reply.position
        self._epoch = reply.starts[f"s{self._steps}"].epoch

    async def _timed(self, call: ScriptCall) -> list[Any]:
        command = self._command(call)
        began = time.perf_counter()
        raw = await self._send(*command)
        self.seconds.append(time.perf_counter() - began)
        return unpack_reply(raw)

    def _command(self, call: ScriptCall) -> list[bytes | str | int]:
        """As an application says it to a client library: digest and keys are text, their number is one."""
        world, queues = self._world, self._world.queues(call.partition)
        sha, count, *rest = arguments(packed_command(world.keys, call, queues, world.server, world.switches))
        keys = int(count)
        return ["EVALSHA", sha.decode(), keys, *(key.decode() for key in rest[:keys]), *rest[keys:]]


@asynccontextmanager
async def over_redis_py(url: str) -> AsyncIterator[Send]:
    """The client library that any application would use, as it comes."""
    client = Redis.from_url(url)
    try:
        yield client.execute_command
    finally:
        await client.aclose()


@asynccontextmanager
async def over_link(url: str) -> AsyncIterator[Send]:
    link = await Link.open(url)
    try:
        yield link.call
    finally:
        await link.close()


async def sample(url: str, calls: int, *, pause: float = 0.0) -> list[float]:
    """Seconds of bare calls over redis-py, one after the other, with `pause` seconds before each."""
    async with over_redis_py(url) as send:
        return await _run_chains(url, send, calls, pause=pause)


async def sample_link(url: str, calls: int, *, chains: int = 1) -> list[float]:
    """Seconds of bare calls over our link: `calls` on each of `chains` runs at the same time."""
    async with over_link(url) as send:
        return await _run_chains(url, send, calls, chains=chains)


async def _run_chains(
    url: str, send: Send, calls: int, *, chains: int = 1, pause: float = 0.0
) -> list[float]:
    async def run(chain: Chain) -> None:
        for _ in range(calls):
            if pause:
                await asyncio.sleep(pause)
            await chain.step()

    async with RedisWorld(url, namespace=f"floor{secrets.token_hex(4)}") as world:
        await world.command("SCRIPT", "LOAD", SCRIPTS["append"].text)
        made = [Chain(world, send) for _ in range(chains)]
        for chain in made:
            await chain.begin()
        await asyncio.gather(*(run(chain) for chain in made))
    return [seconds for chain in made for seconds in chain.seconds]


# --- without a script ------------------------------------------------------------------------------


def ping_bare(url: str, calls: int) -> list[float]:
    """Seconds of PING over a blocking socket with nothing around it."""
    seconds = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(unquote(urlsplit(url).path))
        for _ in range(calls):
            began = time.perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            seconds.append(time.perf_counter() - began)
    return seconds


async def ping(send: Send, calls: int) -> list[float]:
    """Seconds of PING over an asyncio client."""
    seconds = []
    for _ in range(calls):
        began = time.perf_counter()
        await send("PING")
        seconds.append(time.perf_counter() - began)
    return seconds
