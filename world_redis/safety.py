"""Which servers are refused at connect, and what an answer is worth.

`Durability` says what a write must have reached before a client is answered or a body starts under a new
claim: ``memory`` (the server answered), ``fsync`` (it is on the server's disk), ``replicas:N`` (N replicas
have it). WAIT and WAITAOF speak for the writes of the connection they are sent on. A wait that runs out says
nothing about the write: it is resent by its identity, and waits again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from redis.exceptions import RedisError, TimeoutError

from .errors import UnsafeServer
from .link import Link

WAIT_MS = 2_000

# Scripts whose answer lets a client go on, or a body start. The others only move or keep deliveries.
_OF_RUNS = ("run_start", "run_cancel", "run_terminate", "run_unpark")
ANSWERING = frozenset(("append", "settle", "step_claim", "hook_resume", *_OF_RUNS))


class Durability(NamedTuple):
    kind: str = "memory"  # memory | fsync | replicas
    replicas: int = 0

    @staticmethod
    def parse(text: str) -> Durability:
        """``memory``, ``fsync`` or ``replicas:N`` (N from 1). Raises ValueError for anything else."""
        kind, _, number = text.partition(":")
        if kind in ("memory", "fsync") and not number:
            return Durability(kind)
        if kind == "replicas" and number.isdigit() and int(number) > 0:
            return Durability(kind, int(number))
        raise ValueError(f"durability {text!r} is none of memory, fsync, replicas:N")

    async def wait(self, link: Link) -> None:
        """Until everything written on `link` is as safe as asked. Raises TimeoutError."""
        if self.kind == "fsync" and not link.synced:
            reached, _ = await link.call("WAITAOF", 1, 0, WAIT_MS)
            if reached < 1:
                raise TimeoutError(f"not on disk within {WAIT_MS} ms")
        elif self.kind == "replicas":
            reached = await link.call("WAIT", self.replicas, WAIT_MS)
            if reached < self.replicas:
                raise TimeoutError(f"{reached} of {self.replicas} replicas have it after {WAIT_MS} ms")


async def refuse_unsafe(link: Link, durability: Durability) -> None:
    """Raises UnsafeServer for a server that is too old, drops data, or cannot keep what was asked."""
    _refuse_old(link.info)
    policy = await _setting(link, "maxmemory-policy")
    if policy not in ("", "noeviction"):
        raise UnsafeServer(
            f"maxmemory-policy is {policy}: the server may drop runs when memory is full; "
            "set `maxmemory-policy noeviction`"
        )
    if durability.kind == "fsync":
        await _refuse_unsynced(link)
    elif durability.kind == "replicas":
        await _refuse_few(link, durability.replicas)


def _refuse_old(info: Mapping[str, str]) -> None:
    name, version = _version(info)
    if version < ((7, 2) if name == "Valkey" else (7, 0)):
        text = ".".join(map(str, version))
        raise UnsafeServer(f"{name} {text} is too old: at least Redis 7.0 or Valkey 7.2 is needed")


async def _refuse_unsynced(link: Link) -> None:
    """WAITAOF came with 7.2; with ``appendfsync always`` every answer is on disk without it."""
    if await _setting(link, "appendonly") == "no":
        raise UnsafeServer("durability is fsync but the append-only file is off: set `appendonly yes`")
    link.synced = await _setting(link, "appendfsync") == "always"
    name, version = _version(link.info)
    if not link.synced and version < (7, 2):
        raise UnsafeServer(
            f"durability is fsync and this {name} {'.'.join(map(str, version))} has no WAITAOF: "
            "set `appendfsync always`, or run 7.2 or newer"
        )


async def _refuse_few(link: Link, replicas: int) -> None:
    """N must be all replicas, or a fail-over may promote one that has not got it."""
    least = await _setting(link, "min-replicas-to-write")
    if least and int(least) < replicas:
        raise UnsafeServer(
            f"durability is replicas:{replicas} but min-replicas-to-write is {least}: set it to {replicas}"
        )


async def _setting(link: Link, name: str) -> str:
    """A server setting; "" when CONFIG is not ours to call (`worker doctor` says so)."""
    try:
        reply = await link.call("CONFIG", "GET", name)
    except RedisError:
        return ""
    values = list(reply.values()) if isinstance(reply, dict) else reply[1::2]
    return values[0].decode() if values else ""


def _version(info: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    valkey = info.get("valkey_version")
    text = valkey or info.get("redis_version", "0.0")
    return "Valkey" if valkey else "Redis", tuple(int(part) for part in text.split(".")[:2])
