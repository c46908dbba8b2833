"""Is everything in a partition where it belongs, and has every run a way forward?

The invariant: *a run that is not finished is parked with a reason, or has a message ready, delayed or in
flight, or its position is that of its last settled pass and all it waits for are open hooks or live
children; and if its position is not that of its last settled pass, one of these messages is a run message
that comes by itself.* (Ready, in flight, or put off on purpose: a timer that was never handed out does not
count, it is not due for what the body has not seen.)

`check` is pure, over a partition as read by `read_partition`. The script tests call it at their end, the
model and the simulation after every call. `survey.py` asks the same of a partition that is too large to be
read whole, for `worker doctor`; `sweep.py` heals what breaks the invariant, which should never happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from .entities import MessageState, Run, StepState, message_of, run_of, step_of
from .events import FINISHED, START, Event, EventType, Position
from .log import event_of
from .messages import RESCUE, TIMER, Kind
from .runs import CommandCaller
from .transition import Epoch

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
    """A partition at rest. Read while others write, it may show what was never true at one moment."""

    messages: dict[str, MessageState]
    payloads: set[str]  # ids of messages that have one
    places: list[tuple[str, str, str, str]]  # (state, queue, message id, stream entry or score)
    open: set[str]
    done: set[str]
    parked: dict[str, str]  # run id → reason
    runs: dict[str, RunState]  # of open and done, and those that messages name


class Breach(NamedTuple):
    """Something that is not as it must be."""

    rule: str  # liveness | place | out | index | log | news | entities | rescue | lifetime
    subject: str  # run or message id
    detail: str


def check(state: PartitionState) -> list[Breach]:
    """Everything wrong with a partition. Empty is the only good answer."""
    breaches = [*check_places(state), *check_runs(state)]
    messages = messages_by_run(state)
    for id, found in state.runs.items():
        breaches += liveness(id, found, messages.get(id, []), state.open)
    return breaches


def check_runs(state: PartitionState) -> Iterator[Breach]:
    """What is wrong with the runs, their way forward apart. Needs no more of a partition than is theirs."""
    yield from _indexes(state)
    messages = messages_by_run(state)
    for id, found in state.runs.items():
        yield from _out(id, found, state)
        yield from _lifetime(id, found)
        yield from _rescue(id, found, state)
        if found.log is not None:
            yield from _log(id, found, found.log)
            yield from _news(found.log, messages.get(id, []))
            yield from _entities(id, found, found.log)


def messages_by_run(state: PartitionState) -> dict[str, list[MessageState]]:
    found: dict[str, list[MessageState]] = {}
    for m in state.messages.values():
        found.setdefault(m.run, []).append(m)
    return found


# --- the way forward ------------------------------------------------------------------------------


def liveness(
    id: str, found: RunState, messages: Sequence[MessageState], living: Collection[str]
) -> Iterator[Breach]:
    """The invariant, for one run and the messages that name it. `living`: runs that are not finished, its
    children among them."""
    run = found.run
    if run.finished or run.parked:
        return
    rested = run.settled == run.position
    moving = [m for m in messages if m.kind != Kind.CANCEL]
    if not moving and not (rested and _waits_for_others(found, living)):
        yield Breach("liveness", id, f"no message, {run.position} after {run.settled}, {_open(found)}")
    elif not rested and not any(_comes(m) for m in moving):
        yield Breach("liveness", id, f"nobody will look at {run.position} after {run.settled}")


def _comes(m: MessageState) -> bool:
    return m.kind == Kind.RUN and not (m.key == TIMER and m.state == "d" and m.number == 0)


def _waits_for_others(found: RunState, living: Collection[str]) -> bool:
    children = found.children
    others = [s for s in found.steps.values() if s.state != "withdrawn" and s.owner not in children]
    waits = bool(children or found.hooks) and all(child in living for child in children)
    return waits and not others and not found.waits


def _open(found: RunState) -> str:
    steps = [f"{id} {step.state} {step.mode}".rstrip() for id, step in found.steps.items()]
    return f"open: {', '.join([*steps, *found.waits, *found.hooks]) or 'nothing'}"


# --- structure ------------------------------------------------------------------------------------


def check_places(state: PartitionState) -> Iterator[Breach]:
    """Every message waits in exactly one place, the one its header names."""
    seen: dict[str, list[tuple[str, str, str]]] = {}
    for kind, queue, id, entry in state.places:
        seen.setdefault(id, []).append((kind, queue, entry if kind == "r" else ""))
    for id in seen.keys() - state.messages.keys():
        yield Breach("place", id, f"waits in {seen[id]} and is no message")
    for id, m in state.messages.items():
        if seen.get(id) != [(m.state, m.queue, m.entry if m.state == "r" else "")]:
            yield Breach("place", id, f"is {m.state} in {m.queue}, found in {seen.get(id)}")
    for id in state.payloads - state.messages.keys():
        yield Breach("place", id, "a payload without a message")


def _indexes(state: PartitionState) -> Iterator[Breach]:
    for id, found in state.runs.items():
        run = found.run
        # A finished run may have left `done` already: its keys and the index expire by two clocks.
        if run.finished == (id in state.open) or (id in state.done and not run.finished):
            yield Breach("index", id, f"{run.status}, open {id in state.open}, done {id in state.done}")
        if state.parked.get(id, "") != run.parked:
            yield Breach("index", id, f"parked {run.parked!r}, index says {state.parked.get(id, '')!r}")
    for id in (state.open | state.parked.keys()) - state.runs.keys():
        yield Breach("index", id, "an index names a run that is not there")


def _out(id: str, found: RunState, state: PartitionState) -> Iterator[Breach]:
    if found.run.finished and found.out:
        yield Breach("out", id, f"finished, and still has {found.out}")
    for key, message_id in found.out.items():
        m = state.messages.get(message_id)
        if m is None or m.run != id or m.key != key:
            yield Breach("out", id, f"{key} names {message_id}, which is {m}")


def _lifetime(id: str, found: RunState) -> Iterator[Breach]:
    if found.run.finished and found.immortal:
        yield Breach("lifetime", id, f"finished, and {found.immortal} will stay for ever")


def _rescue(id: str, found: RunState, state: PartitionState) -> Iterator[Breach]:
    """The rescue is armed while a step runs, and watches exactly the messages that own the running steps."""
    wanted: dict[str, int] = {}
    for step in found.steps.values():
        if step.state == "running" and step.mode != "child" and not found.run.finished:
            wanted[step.owner] = wanted.get(step.owner, 0) + 1
    m = state.messages.get(found.out.get(RESCUE, ""))
    watched = dict(m.owners) if m else {}
    if watched != wanted or (m is not None) != bool(wanted):
        yield Breach("rescue", id, f"{wanted} own running steps, the rescue watches {watched}")


# --- the log --------------------------------------------------------------------------------------


def _log(id: str, found: RunState, log: Sequence[Event]) -> Iterator[Breach]:
    run = found.run
    slots = [event.slot for event in log]
    if slots != list(range(1, run.head + 1)):
        yield Breach("log", id, f"slots {slots[:5]}…{slots[-5:]}, head {run.head}")
    decisive = [event for event in log if event.decisive]
    last = Position(len(decisive), decisive[-1].slot, decisive[-1].mark) if decisive else START
    if last != run.position:
        yield Breach("log", id, f"the log is at {last}, the record says {run.position}")
    status = _status(log)
    if status != run.status:
        yield Breach("log", id, f"the log says {status}, the record {run.status}")
    used = dict.fromkeys(found.counters, 0)
    for event in log:
        if event.id:
            used[event.id[0]] = max(used[event.id[0]], int(event.id[1:]))
    if used != found.counters:
        yield Breach("log", id, f"the log has used {used}, the record says {found.counters}")
    if any(e.type is EventType.RUN_CANCEL_REQUESTED for e in log) != run.cancel_requested:
        yield Breach("log", id, f"cancel requested: the record says {run.cancel_requested}")


def _news(log: Sequence[Event], messages: Sequence[MessageState]) -> Iterator[Breach]:
    """What a wake tells is an event of the log, and not an earlier one than it says."""
    decisive = [event for event in log if event.decisive]
    for m in messages:
        if m.news is not None and m.news.event not in decisive[m.news.position.decided - 1 :][:1]:
            yield Breach("news", m.id, f"tells {m.news}, the log has {decisive}")


_STATUS = {
    EventType.RUN_CREATED: "pending",
    EventType.RUN_STARTED: "running",
    EventType.RUN_COMPLETED: "completed",
    EventType.RUN_FAILED: "failed",
    EventType.RUN_CANCELLED: "cancelled",
}


def _status(log: Sequence[Event]) -> str:
    status = "absent"
    for event in log:
        if status in FINISHED and event.type not in (EventType.STEP_COMPLETED, EventType.STEP_FAILED):
            return f"{event.type} after {status}"
        status = _STATUS.get(event.type, status)
    return status


def _entities(id: str, found: RunState, log: Sequence[Event]) -> Iterator[Breach]:
    """The open entities are what the log says; withdrawals alone leave no event."""
    steps, waits, hooks, received = _replay(log)
    for step in sorted(steps.keys() | found.steps.keys()):
        said = steps.get(step)
        kept = found.steps.get(step)
        gone_with_run = found.run.finished and said is not None and not said.startswith("running (")
        if kept is None and gone_with_run:
            continue
        if kept is None or said is None or not _agrees(kept, said):
            yield Breach("entities", id, f"{step}: the log says {said}, the store {kept}")
    if not found.waits.items() <= waits.items():
        yield Breach("entities", id, f"waits: the log says {waits}, the store {found.waits}")
    if found.hooks != ({} if found.run.finished else hooks):
        yield Breach("entities", id, f"hooks: the log says {hooks}, the store {found.hooks}")
    if sorted(found.received.values()) != received:
        yield Breach("entities", id, f"payloads received at {received}, the store {found.received}")


def _agrees(kept: StepState, said: str) -> bool:
    return _said(kept) == said or (kept.state == "withdrawn" and said.split()[0] in ("created", "retrying"))


def _said(step: StepState) -> str:
    """A step's state in one line, as `_replay` says it."""
    match step.state, step.mode:
        case "running", "child":
            return "running child"  # whose id may have moved on by continue_as_new
        case "running", _:
            return f"running {tuple(step.epoch)} {step.owner}:{step.number}:{step.mode}"
        case "retrying", _:
            return f"retrying {step.due}"
        case _:
            return step.state


def _replay(
    log: Sequence[Event],
) -> tuple[dict[str, str], dict[str, int], dict[str, str], list[int]]:
    steps: dict[str, str] = {}
    waits: dict[str, int] = {}
    hooks: dict[str, str] = {}
    received: list[int] = []
    for e in log:
        match e.type:
            case EventType.STEP_CREATED:
                steps[e.id] = "running child" if e.extra else "created"
            case EventType.STEP_STARTED:
                steps[e.id] = f"running {tuple(Epoch(e.slot, e.mark))} {e.extra}"
            case EventType.STEP_RETRYING:
                steps[e.id] = f"retrying {e.extra}"
            case EventType.STEP_COMPLETED | EventType.STEP_FAILED:
                steps.pop(e.id, None)
            case EventType.WAIT_CREATED:
                waits[e.id] = int(e.extra)
            case EventType.WAIT_COMPLETED:
                waits.pop(e.id, None)
            case EventType.HOOK_CREATED:
                hooks[e.id] = e.extra
            case EventType.HOOK_DISPOSED:
                hooks.pop(e.id, None)
            case EventType.HOOK_RECEIVED:
                received.append(e.slot)
    return steps, waits, hooks, received


# --- reading --------------------------------------------------------------------------------------


async def read_partition(
    world: CommandCaller, partition: int, *, logs: bool = False, finished: bool = False
) -> PartitionState:
    """A partition as it is: no payload is read, logs and finished runs only when asked for."""
    _, messages, open_key, done_key, parked_key, _ = world.keys.partition(partition)
    names: Any = await world.command("HKEYS", messages)
    ids = [name.decode() for name in names if not name.endswith(b":p")]
    queues = await queues_of(world, partition)
    state = PartitionState(
        messages=await read_messages(world, partition, ids),
        payloads={name[:-2].decode() for name in names if name.endswith(b":p")},
        places=[place for queue in queues for place in await _waiting(world, partition, queue)],
        open=await _members(world, open_key),
        done=await _members(world, done_key),
        parked={
            run.decode(): msgpack.unpackb(value)[0]
            for run, value in pairs(await world.command("HGETALL", parked_key))
        },
        runs={},
    )
    named = state.open | {m.run for m in state.messages.values()} | (state.done if finished else set())
    for id in sorted(named):
        found = await read_run(world, partition, id, log=logs)
        if found is not None:
            state.runs[id] = found
    return state


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


async def _waiting(world: CommandCaller, partition: int, queue: str) -> list[tuple[str, str, str, str]]:
    keys = world.keys.queue(partition, queue)
    found: list[tuple[str, str, str, str]] = []
    for key in (keys.ready, keys.steps):
        stream: Any = await world.command("XRANGE", key, "-", "+")
        found += [("r", queue, fields[1].decode(), entry.decode()) for entry, fields in stream]
    for state, key in (("d", keys.delayed), ("f", keys.flight)):
        members: Any = await world.command("ZRANGE", key, 0, -1)
        found += [(state, queue, member.decode(), "") for member in members]
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


async def many(world: CommandCaller, commands: Sequence[tuple[str, ...]]) -> list[Any]:
    replies: list[Any] = []
    for start in range(0, len(commands), _CHUNK):
        chunk = commands[start : start + _CHUNK]
        replies += await asyncio.gather(*(world.command(*command) for command in chunk))
    return replies


async def _members(world: CommandCaller, key: str) -> set[str]:
    members: Any = await world.command("ZRANGE", key, 0, -1)
    return {member.decode() for member in members}


def pairs(reply: Any) -> list[tuple[bytes, bytes]]:
    """A hash as the server answers it: by name, or as a flat list."""
    if isinstance(reply, dict):
        return list(reply.items())
    return list(zip(reply[::2], reply[1::2], strict=True))
