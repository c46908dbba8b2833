"""The live workers of a namespace, each with a line of its own in the namespace record."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from .errors import LeaseMismatch
from .world import RedisWorld

log = logging.getLogger("worker.store")

_PREFIX = "worker:"
_SILENT_LEASES = 3  # a worker announces itself three times a lease; silent for three of them it is gone


async def announce(world: RedisWorld, id: str, about: Mapping[str, Any]) -> None:
    """Write or renew a worker's line. `about` holds its ``lease`` (seconds)."""
    line = json.dumps({**about, "seen": await _server_ms(world)})
    await world.command("HSET", world.keys.namespace_record(), _PREFIX + id, line)


async def withdraw(world: RedisWorld, id: str) -> None:
    await world.command("HDEL", world.keys.namespace_record(), _PREFIX + id)


async def live_workers(world: RedisWorld) -> dict[str, dict[str, Any]]:
    """Worker id → its line, of those that announced themselves lately."""
    reply = await world.command("HGETALL", world.keys.namespace_record())
    fields = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return live_lines({name.decode(): value for name, value in fields}, await _server_ms(world))


def live_lines(record: Mapping[str, bytes], now: int) -> dict[str, dict[str, Any]]:
    """The same from the fields of the namespace record; `now` is the server's time in ms."""
    found = {}
    for name, value in record.items():
        if name.startswith(_PREFIX):
            line = json.loads(value)
            if line["seen"] + _SILENT_LEASES * line["lease"] * 1000 > now:
                found[name.removeprefix(_PREFIX)] = line
    return found


async def open_agreed(world: RedisWorld) -> None:
    """Open the store. A lease other than the namespace's is refused while workers live by that one, and
    takes its place when none does.

    Raises: as `RedisWorld.open`.
    """
    try:
        await world.open()
    except LeaseMismatch as mismatch:
        if await live_workers(world):
            raise
        log.warning("%s; no worker lives, so it is changed now", mismatch)
        world.replaces_lease = True
        await world.open()
        world.replaces_lease = False


async def _server_ms(world: RedisWorld) -> int:
    seconds, micros = await world.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000
