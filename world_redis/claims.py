"""Idempotency keys of `start`: who holds one, and for how long.

A claim holds the whole start request, so that whoever meets a claim whose run does not exist creates it. It
has no lifetime while its run is open, however long that sleeps; the run's end gives it the run's retention.
"""

from __future__ import annotations

from typing import Any

from .runs import CommandCaller


class StartClaims:
    def __init__(self, world: CommandCaller) -> None:
        self._world = world

    async def claim(self, key: str, request: bytes) -> bytes:
        """Take `key` for `request` if it is free. Answers the request that holds it."""
        held: Any = await self._world.command("SET", self._world.keys.start(key), request, "NX", "GET")
        return request if held is None else bytes(held)

    async def end(self, key: str, retention_ms: int) -> None:
        """Its run has ended: the key is free again once the run is forgotten."""
        await self._world.command("PEXPIRE", self._world.keys.start(key), retention_ms)
