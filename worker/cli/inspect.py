"""Everything the store knows of one run, put together for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from world_redis.entities import MessageState, message_of
from world_redis.events import EventType
from world_redis.ids import long_id, partition_of
from world_redis.keys import Keys
from world_redis.roster import live_workers
from world_redis.world import RedisWorld

from ..sdk.client import Client
from ..sdk.errors import RunCancelledError, RunNotFoundError, error_text
from ..sdk.history import RunEvent, RunInfo, StepInfo
from ..sdk.run import Run, pairs

_STATES = {"r": "ready", "d": "delayed", "f": "in flight"}
_ENDS = (EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)


@dataclass(frozen=True, slots=True)
class Pending:
    """A message of the run."""

    id: str
    key: str  # wake, timer, rescue, or the step's short id
    kind: str
    queue: str
    state: str  # ready, delayed, in flight
    number: int  # of the last hand-out
    attempt: int
    worker: str  # that holds it
    until: datetime | None  # due time, or the end of its lease when in flight


@dataclass(frozen=True, slots=True)
class Wait:
    id: str
    due: datetime


@dataclass(frozen=True, slots=True)
class OpenHook:
    id: str
    token: str
    name: str  # of the payload class
    received: int  # payloads so far; the hook of a run that still waits may have passed them over


@dataclass(frozen=True, slots=True)
class Problem:
    """What ended a run that did not complete."""

    error: str  # type and message
    code: str
    cause: str = ""  # type and message of what lies under it
    raised_at: str = ""  # file:line in function
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    run: RunInfo
    warnings: list[str]  # why it may wait for ever, in words
    input: Any  # its arguments by name
    result: Any  # None before its end
    problem: Problem | None
    steps: list[StepInfo]
    waits_for: list[str]  # of each step: what happens next, in words
    workers: dict[str, str]  # owner message id → worker
    messages: list[Pending]
    waits: list[Wait]
    hooks: list[OpenHook]
    rescue: str  # in words


async def inspect(client: Client, run_id: str) -> Inspection:
    """Raises RunNotFoundError."""
    run: Run[Any] = client.get_run(run_id)
    info = await run.info()
    events, steps, table = await run.events(), await run.steps(), await run.table()
    if table is None:
        raise RunNotFoundError(run_id)
    world = await client.world()
    messages = await _messages(world, run_id, {s.owner for s in steps if s.owner})
    end = next((event for event in reversed(events) if event.type in _ENDS), None)
    by_key = {message.key: message for message in messages}
    workers = {m.id: m.worker for m in messages if m.state == "in flight"}
    return Inspection(
        run=info,
        warnings=await _warnings(world, info, messages),
        input=events[0].detail.get("input", events[0].detail),
        result=end.detail.get("result") if end else None,
        problem=_problem(run_id, end, events) if end else None,
        steps=steps,
        waits_for=[_waits_for(step, by_key, info) for step in steps],
        workers=workers,
        messages=messages,
        waits=[Wait(long_id(wait.id), _moment(wait.due)) for wait in table.waits],
        hooks=[_hook(long_id(hook.id), hook.token, events) for hook in table.hooks],
        rescue=_rescue(by_key.get("rescue"), info),
    )


def _problem(run_id: str, end: RunEvent, events: list[RunEvent]) -> Problem | None:
    if end.type == EventType.RUN_COMPLETED:
        return None
    if "error" not in end.detail:
        return Problem(error=str(end.detail), code="UNREADABLE")
    if end.type == EventType.RUN_CANCELLED and not end.detail["error"]:  # the request has the reason
        asked = next((event for event in events if event.type == EventType.RUN_CANCEL_REQUESTED), None)
        reason = asked.detail.get("reason") if asked else None
        return Problem(error_text(RunCancelledError(run_id, reason)), end.detail["code"])
    return Problem(**end.detail)


def _hook(id: str, token: str, events: list[RunEvent]) -> OpenHook:
    told = [event for event in events if event.correlation_id == id]
    name = next((event.name for event in told if event.type == EventType.HOOK_CREATED), "")
    return OpenHook(id, token, name, sum(event.type == EventType.HOOK_RECEIVED for event in told))


async def _warnings(world: RedisWorld, run: RunInfo, messages: list[Pending]) -> list[str]:
    if run.finished:
        return []
    served = await served_queues(world)
    wanted = {run.queue} | {message.queue for message in messages}
    found = [f"no live worker takes from queue {queue!r}" for queue in sorted(wanted - served)]
    if run.refused_since and not run.parked:
        found.append(refusal(run.refused_since, run.refused_by))
    return found


def refusal(since: datetime, builds: str) -> str:
    """Why a run that is handed out again and again does not go on."""
    return (
        f"refused since {since:%H:%M:%S} UTC by builds {builds or '?'}: no worker knows its code, or what "
        "it knows does not fit the log; parks after WORKFLOW_PARK_AFTER_SECONDS"
    )


async def served_queues(world: RedisWorld) -> set[str]:
    """What workers take from that have announced themselves within a lease, and do not drain."""
    seconds, micros = await world.command("TIME")
    now = int(seconds) * 1000 + int(micros) // 1000
    return {
        queue
        for about in (await live_workers(world)).values()
        if not about["draining"] and now - about["seen"] <= 1000 * about["lease"]
        for queue in about["queues"]
    }


async def _messages(world: RedisWorld, run_id: str, owners: set[str]) -> list[Pending]:
    """The messages that wait for the run, and those under which its steps run."""
    partition, keys = partition_of(run_id), world.keys
    out = pairs(await world.command("HGETALL", keys.run(partition, run_id)[3]))
    ids = sorted({value.decode() for value in out.values()} | owners)
    record = await world.command("HMGET", keys.partition(partition)[0], "lease", "amnesty")
    lease, amnesty = (int(value or 0) for value in record)
    found = []
    for id in ids:
        raw: Any = await world.command("HGET", keys.partition(partition)[1], id)
        if raw is not None:
            message = message_of(id, raw)
            found.append(await _pending(world, keys, message, lease, amnesty))
    return found


async def _pending(world: RedisWorld, keys: Keys, m: MessageState, lease: int, amnesty: int) -> Pending:
    _, delayed, flight, *_ = keys.queue(partition_of(m.run), m.queue)
    place = {"d": delayed, "f": flight}.get(m.state)
    score: Any = await world.command("ZSCORE", place, m.id) if place else None
    holder = m.holder if m.state == "f" else ""
    until = None if score is None else float(score)
    if until is not None and m.state == "f":  # as the store reckons the lease left
        until = max(until, amnesty) + (0 if m.doubted else lease // 2)  # the half of its lease still to come
    moment = None if until is None else _moment(until)
    return Pending(m.id, m.key, m.kind, m.queue, _STATES[m.state], m.number, m.attempt, holder, moment)


def _waits_for(step: StepInfo, by_key: dict[str, Pending], run: RunInfo) -> str:
    """What makes this step go on."""
    if step.ended_at is not None or run.finished:
        return ""
    if step.child_run_id:
        return f"the end of {step.child_run_id}"
    message = by_key.get(f"s{int(step.id.partition('_')[2])}")
    match step.state:
        case "running" if step.owner_live:
            return "its code"
        case "running":
            return "its message to be handed out again, or the rescue"
        case "retrying":
            return f"its next attempt at {step.due:%H:%M:%S} UTC" if step.due else "its next attempt"
        case "created" if message is not None:
            return f"a worker of queue {message.queue}"
        case "created":
            return "its message, which the next wake sends again"
        case _:
            return ""


def _rescue(message: Pending | None, run: RunInfo) -> str:
    if message is None:
        return f"not armed ({'the run has ended' if run.finished else 'nothing runs'})"
    return f"armed, looks again at {message.until:%H:%M:%S} UTC" if message.until else "armed"


def _moment(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
