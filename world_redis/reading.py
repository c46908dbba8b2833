"""Runs and messages as they are in the server, read without a script: for whoever checks or counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from .entities import MessageState, Run, StepState, message_of, run_of, step_of
from .events import Event
from .log import event_of
from .runs import CommandCaller

_CHUNK = 200  # commands sent at once, headers asked for at once


@dataclass(slots=True)
class RunState:
    """A run and everything under its keys."""

    run: Run
    steps: dict[str, StepState]
    waits: dict[str, int]  # id → due ms
    hooks: dict[str, str]  # id → token
    received: dict[str, int]  # "<hook>:<resume id>" → slot
    counters: dict[str, int]  # s w h a p → highest number used
    out: dict[str, str]  # message key → message id
    log: list[Event] | None  # None: not read
    immortal: list[str] = field(default_factory=list)  # keys of a finished one that have no lifetime

    @property
    def children(self) -> set[str]:
        """Run ids of those that have not told it their end."""
        return {
            step.owner for step in self.steps.values() if step.state == "running" and step.mode == "child"
        }


@dataclass(slots=True)
class PartitionState:
    """A partition at rest, or a part of one. Read while others write, it may show what was never true at one
    moment."""

    messages: dict[str, MessageState]
    payloads: set[str]  # ids of messages that have one
    places: list[tuple[str, str, str, str]]  # (state, queue, message id, stream entry or score)
    open: set[str]
    done: set[str]
    parked: dict[str, str]  # run id → reason
    runs: dict[str, RunState]  # of open and done, and those that messages name


async def queues_of(world: CommandCaller, partition: int) -> list[str]:
    """The queues a partition knows."""
    packed: Any = await world.command("HGET", world.keys.partition(partition)[0], "queues")
    return msgpack.unpackb(packed) if packed else []


async def read_messages(world: CommandCaller, partition: int, ids: Sequence[str]) -> dict[str, MessageState]:
    """Those of these messages that are there."""
    key = world.keys.partition(partition)[1]
    found: dict[str, MessageState] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        headers: Any = await world.command("HMGET", key, *chunk)
        found |= {id: message_of(id, raw) for id, raw in zip(chunk, headers, strict=True) if raw}
    return found


async def read_run(world: CommandCaller, partition: int, id: str, *, log: bool = False) -> RunState | None:
    """A run as it is, without its log unless asked for; None when it is not there."""
    keys = world.keys.run(partition, id)
    record, entities, out = await many(world, [("HGETALL", key) for key in (keys[0], keys[2], keys[3])])
    if not record:
        return None
    entries: Any = await world.command("XRANGE", keys[1], "-", "+") if log else None
    found = run_state(record, entities, out, entries)
    if found.run.finished:
        lifetimes = await many(world, [("PTTL", key) for key in keys])
        found.immortal = [key for key, ms in zip(keys, lifetimes, strict=True) if ms == -1]
    return found


def run_state(record: Any, entities: Any, out: Any, entries: Any) -> RunState:
    """A run from what the server answers: three hashes, and the entries of its log or None."""
    fields = {name.decode(): value for name, value in pairs(record)}
    held = {name.decode(): value for name, value in pairs(entities)}
    return RunState(
        run=run_of(fields),
        steps={id: step_of(raw) for id, raw in held.items() if id[0] == "s"},
        waits={id: msgpack.unpackb(raw, raw=True)[1] for id, raw in held.items() if id[0] == "w"},
        hooks={id: msgpack.unpackb(raw, raw=True)[1].decode() for id, raw in held.items() if id[0] == "h"},
        received={id[1:]: int(raw) for id, raw in held.items() if id[0] == "r"},
        counters={kind: int(fields.get(kind) or 0) for kind in "swhap"},
        out={key.decode(): message.decode() for key, message in pairs(out)},
        log=None if entries is None else [event_of(entry) for entry in entries],
    )


async def members_among(world: CommandCaller, key: str, ids: Collection[str]) -> set[str]:
    """Those of `ids` that are in a sorted set."""
    asked = list(ids)
    scores = await many(world, [("ZSCORE", key, id) for id in asked])
    return {id for id, score in zip(asked, scores, strict=True) if score is not None}


async def many(world: CommandCaller, commands: Sequence[tuple[str, ...]]) -> list[Any]:
    """The answers to these commands, in their order; some are sent at once."""
    replies: list[Any] = []
    for start in range(0, len(commands), _CHUNK):
        chunk = commands[start : start + _CHUNK]
        replies += await asyncio.gather(*(world.command(*command) for command in chunk))
    return replies


def pairs(reply: Any) -> list[tuple[bytes, bytes]]:
    """A hash as the server answers it: by name, or as a flat list."""
    if isinstance(reply, dict):
        return list(reply.items())
    return list(zip(reply[::2], reply[1::2], strict=True))
