"""Every event type and the state machine they drive, as one table.

Read this first. A run's log is a sequence of events; each event moves one *subject* (the run, or one
of its steps, waits, hooks, patches) from a state to another. ``RULES`` has one row per event type and
says, for every state the subject may be in, what a writer of that event is answered. Nothing else
decides legality: the Python check (`judge`), the generated ``lua/lib/10_rules.lua``, the table in the
docs and the parametrised tests all come from here.

Some transitions need a look at more than the state; the row names that look as its *guard*:

- ``claim``: a running step may be started again only when its owner's delivery is over (or is an
  earlier delivery of the same message); a retrying one only from its due time on.
- ``epoch``: the writer must name the epoch of the recorded start, otherwise it is ``superseded``.
- ``due``: a wait ends at its due time by the server's clock, not before.
- ``resume``: the same ``resume_id`` answers the same event.
- ``once``: at most one per run.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Answer(StrEnum):
    """What the store says to a writer. One meaning per word, in Lua, Python, metrics and docs."""

    OK = "ok"  # written
    EXISTS = "exists"  # the same thing is already there; nothing was written, nothing is wrong
    CONFLICT = "conflict"  # somebody else decided it first
    STALE = "stale"  # a decisive event exists that the writer's body has not seen
    EXPIRED = "expired"  # the run is finished
    GONE = "gone"  # it was settled, withdrawn or closed
    LOST = "lost"  # the writer and the store disagree about the past: drop the body and read
    NOT_FOUND = "not_found"  # never existed, or its retention has passed
    TOO_EARLY = "too_early"  # before its due time; the answer carries the time left
    OWNED = "owned"  # running under another live delivery; the answer carries the time left
    SUPERSEDED = "superseded"  # a later delivery or start has taken over from this writer
    INVALID = "invalid"  # a value the store refuses (a cap was exceeded)


# What a writer is told whose delivery does not hold its message.
NOT_HELD = frozenset({Answer.SUPERSEDED, Answer.LOST, Answer.GONE})


class EventType(StrEnum):
    """The event types, in the order of a run's life."""

    RUN_CREATED = "run_created"
    RUN_STARTED = "run_started"
    RUN_CANCEL_REQUESTED = "run_cancel_requested"
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"
    STEP_CREATED = "step_created"
    STEP_STARTED = "step_started"
    STEP_RETRYING = "step_retrying"
    STEP_COMPLETED = "step_completed"
    STEP_FAILED = "step_failed"
    WAIT_CREATED = "wait_created"
    WAIT_COMPLETED = "wait_completed"
    HOOK_CREATED = "hook_created"
    HOOK_RECEIVED = "hook_received"
    HOOK_DISPOSED = "hook_disposed"
    HOOK_CONFLICT = "hook_conflict"
    ATTR_SET = "attr_set"
    PATCH_RECORDED = "patch_recorded"


# Every state a subject may be in, in the order of its life. "absent" is never created; "ended" is
# created and over: an ended entity is dropped from the store and recognised by its dense number.
STATES: Mapping[str, tuple[str, ...]] = {
    "run": ("absent", "pending", "running", "completed", "failed", "cancelled"),
    "step": ("absent", "created", "running", "retrying", "withdrawn", "ended"),
    "wait": ("absent", "open", "ended"),
    "hook": ("absent", "open", "ended"),
    "patch": ("absent", "ended"),
    "attr": ("absent", "ended"),
}
FINISHED = frozenset({"completed", "failed", "cancelled"})


class Rule(NamedTuple):
    """One row of the state machine."""

    type: EventType
    code: str  # two letters, how the log stores the type
    subject: str  # a key of STATES
    target: str  # the subject's state afterwards ("" leaves it as it is)
    guard: str  # a further check when the state allows it ("" for none)
    decisive: bool  # a body can observe it
    finished: Answer | None  # the answer on a finished run; None: judged by the subject's state
    answers: Mapping[str, Answer]  # state → answer


def _row(
    type: EventType,
    code: str,
    subject: str,
    target: str,
    answers: str,
    *,
    guard: str = "",
    decisive: bool = False,
    finished: Answer | None = Answer.EXPIRED,
) -> Rule:
    words = [Answer(word) for word in answers.split()]
    by_state = dict(zip(STATES[subject], words, strict=True))
    return Rule(type, code, subject, target, guard, decisive, finished, by_state)


_E = EventType

# fmt: off
RULES: tuple[Rule, ...] = (
    # run                                          absent    pending running completed failed cancelled
    _row(_E.RUN_CREATED,   "rc", "run", "pending",   "ok        exists exists exists exists exists", finished=None),
    _row(_E.RUN_STARTED,   "rs", "run", "running",   "not_found ok exists expired expired expired"),
    _row(_E.RUN_CANCEL_REQUESTED, "rq", "run", "",   "not_found ok ok expired expired expired",
         guard="once", decisive=True),
    _row(_E.RUN_COMPLETED, "ro", "run", "completed", "not_found ok ok conflict conflict conflict", finished=None),
    _row(_E.RUN_FAILED,    "rf", "run", "failed",    "not_found ok ok conflict conflict conflict", finished=None),
    _row(_E.RUN_CANCELLED, "rx", "run", "cancelled", "not_found ok ok conflict conflict exists", finished=None),
    # step                                          absent    created running retrying withdrawn ended
    _row(_E.STEP_CREATED,  "sc", "step", "created",  "ok        exists exists exists exists exists"),
    _row(_E.STEP_STARTED,  "ss", "step", "running",  "not_found ok ok ok gone exists", guard="claim"),
    _row(_E.STEP_RETRYING, "sr", "step", "retrying", "not_found superseded ok superseded superseded exists",
         guard="epoch"),
    _row(_E.STEP_COMPLETED, "so", "step", "ended",   "not_found superseded ok superseded superseded exists",
         guard="epoch", decisive=True, finished=None),
    # A step that is not running has no epoch: only a writer who names none may fail it, on a cancel.
    _row(_E.STEP_FAILED,   "sf", "step", "ended",    "not_found ok ok ok superseded exists",
         guard="epoch", decisive=True, finished=None),
    # wait                                          absent    open ended
    _row(_E.WAIT_CREATED,  "wc", "wait", "open",     "ok        exists exists"),
    _row(_E.WAIT_COMPLETED, "wo", "wait", "ended",   "not_found ok exists", guard="due", decisive=True),
    # hook                                          absent    open ended
    _row(_E.HOOK_CREATED,  "hc", "hook", "open",     "ok        exists exists", decisive=True),
    _row(_E.HOOK_RECEIVED, "hr", "hook", "",         "not_found ok gone", guard="resume", decisive=True),
    _row(_E.HOOK_DISPOSED, "hd", "hook", "ended",    "not_found ok exists"),
    _row(_E.HOOK_CONFLICT, "hx", "hook", "ended",    "ok        exists exists", decisive=True),
    # the rest
    _row(_E.ATTR_SET,      "as", "attr", "ended",    "ok        exists"),
    _row(_E.PATCH_RECORDED, "pr", "patch", "ended",  "ok        exists"),
)
# fmt: on

RULE: Mapping[EventType, Rule] = {rule.type: rule for rule in RULES}
DECISIVE = frozenset(rule.type for rule in RULES if rule.decisive)


class Position(NamedTuple):
    """Where a body stands: its last decisive event. Compared for equality, never for order, so that a
    log which went back in a fail-over is noticed."""

    decided: int  # decisive events so far
    slot: int  # slot of the last one (0: none yet)
    mark: bytes  # mark of the transition that wrote it (b"": none yet)


START = Position(0, 0, b"")


class Event(NamedTuple):
    """One entry of a run's log."""

    slot: int  # 1..N, dense
    type: EventType
    id: str  # short correlation id ("s12", "w3", "h1"); "" for run events
    at: int  # ms since the epoch: server time, or as given by the writer of a decisive event
    mark: bytes  # the writer's 8 random bytes (decisive events, run_created, step_started), else b""
    data: bytes  # opaque payload
    # Added by the script: due ms of a wait or a retry · "message:number:mode" of a start · the run of a child ·
    # the token of a hook · of a run that goes on as another, that one.
    extra: str

    @property
    def decisive(self) -> bool:
        return self.type in DECISIVE


def judge(type: EventType, run_state: str, state: str) -> Answer:
    """Answer a writer of `type` before guards, as the scripts do.

    `run_state` is a state of ``STATES["run"]``, `state` one of the subject's states (the run's own for
    run events). Pure.
    """
    rule = RULE[type]
    if run_state == "absent" and type is not EventType.RUN_CREATED:
        return Answer.NOT_FOUND
    if run_state in FINISHED and rule.finished is not None:
        return rule.finished
    return rule.answers[state]
