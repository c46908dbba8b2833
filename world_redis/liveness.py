"""Is everything in a partition where it belongs, and has every run a way forward?

The invariant: *a run that is not finished is parked with a reason, or has a message ready, delayed or in
flight, or its position is that of its last settled pass and all it waits for are open hooks or live
children; and if its position is not that of its last settled pass, one of these messages is a run message
that comes by itself.* (Ready, in flight, or put off on purpose: a timer that was never handed out does not
count, it is not due for what the body has not seen.)

All of it is pure. The script tests call `check` over a whole partition at their end, the model and the
simulation after every call. `survey.py` asks the same of a partition too large to be read whole, for
`worker doctor`; `sweep.py` heals what breaks the invariant, which should never happen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from .entities import MessageState, StepState
from .events import FINISHED, START, Event, EventType, Position
from .messages import RESCUE, TIMER, Kind
from .reading import PartitionState, RunState
from .transition import Epoch


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
