"""A run as people see it: its events and steps, read from the log and the open entities. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from world_redis.entities import run_of
from world_redis.events import Event, EventType
from world_redis.ids import event_id, long_id
from world_redis.transition import OpenStep, Table

from ..core.records import (
    EXHAUSTED,
    FATAL,
    AttributesSet,
    CancelRequested,
    Failed,
    HookConflict,
    HookCreated,
    HookReceived,
    PatchRecorded,
    StepCreated,
    StepRetrying,
    unpack,
)
from .errors import error_text
from .values import Codec, decode_failure, remote_traceback

_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_ENDS = {EventType.STEP_COMPLETED: "completed", EventType.STEP_FAILED: "failed"}
_RAISED = (EXHAUSTED, FATAL)  # codes of a step whose last execution raised

_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_ENGINE = re.compile(r"/worker/(cli|core|executors|runtime|sdk)/|/world_redis/")
_PYTHON = re.compile(r"^<|/lib/python3\.\d+/(?!(site|dist)-packages/)")
_INSTALLED = re.compile(r"/(site|dist)-packages/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The record of a run."""

    run_id: str
    workflow: str
    version: int
    status: str  # pending running completed failed cancelled
    parked: str  # why it waits for an operator or another build; "" when it does not
    parked_detail: str
    refused_since: datetime | None  # since when every worker that took it gave it back; see `refused_by`
    refused_by: str  # the builds of these workers, space separated
    queue: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    cancel_requested: bool
    events: int  # length of its log
    root_run_id: str
    parent_run_id: str | None
    retried_from: str | None
    continued_to: str | None  # the run that went on as, see `continue_as_new`
    attributes: Mapping[str, str]  # at its start; see `Run.attributes` for the current ones
    deployment: str

    @property
    def finished(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One entry of a run's log."""

    id: str  # evnt_ and its slot
    slot: int  # 1, 2, 3, ...
    type: str
    correlation_id: str  # of the step, wait or hook; "" for events of the run
    at: datetime
    name: str  # of the step, child or hook class a create event is about
    detail: Mapping[str, Any]  # what the event carries, values decoded where that works


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """One step or child of a run."""

    id: str  # step_ and 26 digits
    name: str
    state: str  # created running retrying withdrawn completed failed
    starts: int  # executions started
    errors: int  # recorded errors
    crashes: int  # executions that ended without a recorded end
    created_at: datetime
    started_at: datetime | None  # of the last execution
    ended_at: datetime | None
    child_run_id: str  # "" for a step
    epoch: int  # slot of the last start; 0 before the first
    mode: str  # of the running execution: inline queue external child
    owner: str  # message id of the running execution's delivery
    owner_number: int
    owner_live: bool
    lease_left: float  # seconds
    due: datetime | None  # of a retry
    has_message: bool  # a message waits or is in flight for it
    result: Any = None  # of a completed one, decoded without annotation
    error: str = ""  # of a failed or retried one: its type and message
    cause: str = ""  # type and message of what lies under that error, when something does
    raised_at: str = ""  # file:line in function, of the user's code
    traceback: str = ""  # of that error, as its worker recorded it


def info_of(run_id: str, record: Mapping[str, bytes]) -> RunInfo:
    """Read a run's record."""
    run = run_of(record)
    return RunInfo(
        run_id=run_id,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        parked=run.parked,
        parked_detail=run.park_detail,
        refused_since=_moment(run.refused_since) if run.refused_since else None,
        refused_by=run.refused_by if run.refused_since else "",
        queue=run.queue,
        created_at=_moment(run.created),
        started_at=_moment(run.started) if run.started else None,
        ended_at=_moment(run.ended) if run.ended else None,
        cancel_requested=run.cancel_requested,
        events=run.head,
        root_run_id=run.root,
        parent_run_id=run.parent or None,
        retried_from=record.get("retried_from", b"").decode() or None,
        continued_to=record.get("continued_to", b"").decode() or None,
        attributes=orjson.loads(record.get("attributes") or b"{}"),
        deployment=run.deployment,
    )


def event_info(event: Event, codec: Codec) -> RunEvent:
    """One event for people. A value that cannot be read is shown as what is wrong with it."""
    try:
        name, detail = _described(event, codec)
    except Exception as error:  # the log must be readable whatever somebody wrote into it
        name, detail = "", {"unreadable": str(error)}
    return RunEvent(
        id=event_id(event.slot),
        slot=event.slot,
        type=event.type.value,
        correlation_id=correlation_id(event.id),
        at=_moment(event.at),
        name=name,
        detail=detail,
    )


def correlation_id(short: str) -> str:
    """The long form, where there is one."""
    return long_id(short) if short and short[0] in "swhp" else short


def attributes_of(initial: Mapping[str, str], events: Iterable[Event]) -> dict[str, str]:
    """The attributes after all changes of the log."""
    current = dict(initial)
    for event in events:
        if event.type is EventType.ATTR_SET:
            for key, value in unpack(AttributesSet, event.data).changes.items():
                if value is None:
                    current.pop(key, None)
                else:
                    current[key] = value
    return current


def steps_of(events: Iterable[Event], table: Table | None, codec: Codec) -> list[StepInfo]:
    """Every step of the log in the order of its calls, with what the store knows of the open ones."""
    found: dict[str, StepInfo] = {}
    for event in events:
        if event.type is EventType.STEP_CREATED:
            found[event.id] = _created(event)
        elif event.id in found:
            found[event.id] = _moved(found[event.id], event, codec)
    for step in table.steps if table is not None else ():
        if step.id in found:
            found[step.id] = _open(found[step.id], step)
    return sorted(found.values(), key=lambda step: step.id)


def _created(event: Event) -> StepInfo:
    record = unpack(StepCreated, event.data)
    return StepInfo(
        id=long_id(event.id),
        name=record.name,
        state="running" if record.child_run_id else "created",
        starts=0,
        errors=0,
        crashes=0,
        created_at=_moment(event.at),
        started_at=None,
        ended_at=None,
        child_run_id=record.child_run_id,
        epoch=0,
        mode="child" if record.child_run_id else "",
        owner="",
        owner_number=0,
        owner_live=False,
        lease_left=0.0,
        due=None,
        has_message=False,
    )


def _moved(step: StepInfo, event: Event, codec: Codec) -> StepInfo:
    match event.type:
        case EventType.STEP_STARTED:
            owner, number, mode = event.extra.rsplit(":", 2)
            return replace(
                step,
                state="running",
                starts=step.starts + 1,
                crashes=step.crashes + (step.state == "running"),
                started_at=_moment(event.at),
                epoch=event.slot,
                owner=owner,
                owner_number=int(number),
                mode=mode,
                due=None,
            )
        case EventType.STEP_RETRYING:
            record = unpack(StepRetrying, event.data)
            return replace(
                step,
                state="retrying",
                errors=step.errors + record.counted,
                due=_moment(event.extra),
                owner="",
                mode="",
                **(_told(record.failure) if record.failure else {}),  # a drain keeps the last error
            )
        case EventType.STEP_COMPLETED:
            return replace(_ended(step, event), result=_value(event.data, codec), **_told(b""))
        case EventType.STEP_FAILED:
            failed = unpack(Failed, event.data)
            told = _told(failed.failure)
            told["error"] = told["error"] or failed.code
            raised = failed.code in _RAISED and not step.child_run_id  # no event of its own counts this one
            return replace(_ended(step, event), errors=step.errors + raised, **told)
        case _:
            return step


def _ended(step: StepInfo, event: Event) -> StepInfo:
    return replace(step, state=_ENDS[event.type], ended_at=_moment(event.at), due=None)


def _open(step: StepInfo, seen: OpenStep) -> StepInfo:
    return replace(
        step,
        state=seen.state,
        mode=seen.mode,
        starts=seen.starts,
        errors=seen.errors,
        crashes=seen.crashes,
        owner=seen.owner.message_id if seen.owner else "",
        owner_number=seen.owner.number if seen.owner else 0,
        owner_live=seen.owner_live,
        lease_left=seen.lease_left / 1000,
        due=_moment(seen.due) if seen.due else None,
        has_message=seen.has_message,
    )


def _described(event: Event, codec: Codec) -> tuple[str, dict[str, Any]]:
    """Name and detail of an event."""
    data = event.data
    match event.type:
        case EventType.RUN_CREATED:
            return "", {"input": _value(data, codec)}
        case EventType.RUN_COMPLETED if event.extra:
            return "", {"continued_to": event.extra}
        case EventType.RUN_COMPLETED | EventType.STEP_COMPLETED:
            return "", {"result": _value(data, codec)}
        case EventType.RUN_FAILED | EventType.STEP_FAILED | EventType.RUN_CANCELLED:
            failed = unpack(Failed, data)
            return "", {"code": failed.code, **_error_detail(failed.failure)}
        case EventType.RUN_CANCEL_REQUESTED:
            return "", {"reason": unpack(CancelRequested, data).reason}
        case EventType.STEP_CREATED:
            record = unpack(StepCreated, data)
            detail = {"input": _value(record.input, codec)}
            more = {"queue": record.queue, "options": record.options, "child": record.child_run_id}
            return record.name, detail | {key: value for key, value in more.items() if value}
        case EventType.STEP_STARTED:
            owner, number, mode = event.extra.rsplit(":", 2)
            return "", {"mode": mode, "message": owner, "number": int(number)}
        case EventType.STEP_RETRYING:
            retry = unpack(StepRetrying, data)
            return "", {**_error_detail(retry.failure), "due": _moment(event.extra).isoformat()}
        case EventType.WAIT_CREATED:
            return "", {"due": _moment(event.extra).isoformat()}
        case EventType.HOOK_CREATED:
            return unpack(HookCreated, data).name, {}  # the token stays out: it is a key to the run
        case EventType.HOOK_RECEIVED:
            return "", {"payload": _value(unpack(HookReceived, data).payload, codec)}
        case EventType.HOOK_CONFLICT:
            return "", {"held_by": unpack(HookConflict, data).run_id}
        case EventType.ATTR_SET:
            return "", {"changes": dict(unpack(AttributesSet, data).changes)}
        case EventType.PATCH_RECORDED:
            return unpack(PatchRecorded, data).change_id, {}
        case _:
            return "", {}


def _value(data: bytes, codec: Codec) -> Any:
    """A recorded value, its plain JSON when its class is not registered here."""
    try:
        return codec.decode(data)
    except Exception:
        return orjson.loads(data)


def _error_detail(failure: bytes) -> dict[str, str]:
    told = _told(failure)
    return {name: text for name, text in told.items() if text or name == "error"}


def _told(failure: bytes) -> dict[str, Any]:
    """What is shown of a recorded failure; every text is empty where there is none."""
    if not failure:
        return {"error": "", "cause": "", "raised_at": "", "traceback": ""}
    error = decode_failure(failure)
    *_, root = chain_of(error)
    return {
        "error": error_text(error),
        "cause": error_text(root) if root is not error else "",
        "raised_at": raised_at(error),
        "traceback": traceback_text(error),
    }


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error and what lies under it, the root last: its cause, or the first member of a group."""
    below: BaseException | None = error
    while below is not None:
        yield below
        members = below.exceptions if isinstance(below, BaseExceptionGroup) else (None,)
        below = below.__cause__ or members[0]


def raised_at(error: BaseException) -> str:
    """``file:line in function`` of the deepest line of users' code under an error; of installed code the
    first line, for an application may be installed too. "" when nobody recorded it."""
    for each in reversed(list(chain_of(error))):
        frames: list[tuple[str, str, str]] = _FRAME.findall(remote_traceback(each).replace("\\", "/"))
        theirs = [frame for frame in frames if not (_ENGINE.search(frame[0]) or _PYTHON.search(frame[0]))]
        own = [frame for frame in theirs if not _INSTALLED.search(frame[0])]
        if theirs:
            file, line, function = own[-1] if own else theirs[0]
            return f"{file}:{line} in {function}"
    return ""


def traceback_text(error: BaseException) -> str:
    """Where a recorded error and its causes were raised, as Python prints it; "" when nobody recorded it."""
    parts = []
    cause: BaseException | None = error
    while cause is not None:
        if frames := remote_traceback(cause):
            parts.append(f"Traceback (most recent call last):\n{frames.rstrip()}\n{error_text(cause)}\n")
        cause = cause.__cause__
    return _CAUSED.join(reversed(parts))


def _moment(ms: str | int) -> datetime:
    return datetime.fromtimestamp(float(ms) / 1000, UTC)
