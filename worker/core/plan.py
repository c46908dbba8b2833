"""From a quiet body to one transition's decisions. Pure.

`plan` looks at the calls the body has issued, at the open entities when the store has listed them, and at
how the body ended, and says what to write, send, withdraw and execute. The session carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import orjson

from world_redis.events import EventType
from world_redis.ids import child_run_id
from world_redis.messages import (
    DEADLINE,
    RESCUE,
    TIMER,
    Kind,
    RunContext,
    RunMessage,
    StepMessage,
    pack_run_message,
    pack_step_message,
)
from world_redis.runs import run_fields
from world_redis.transition import ChildStart, Decision, Fact, OpenStep, Send, Table

from .calls import (
    AttributesCall,
    Call,
    Cancelled,
    ChildCall,
    ContinuedAsNew,
    DisposeCall,
    HookCall,
    Outcome,
    PatchCall,
    Raised,
    Returned,
    StepCall,
    WaitCall,
)
from .dispatch import RESCUED, Action, Here, Row, action_of, row_of, row_of_new
from .records import (
    CANCELLED,
    AttributesSet,
    Failed,
    HookConflict,
    HookCreated,
    PatchRecorded,
    StepCreated,
    StepRetrying,
    pack,
)

# A wide pass is cut, in call order: at most 200 decisions in one transition, and no more of arguments (bytes)
# than a server takes in while a lease lasts. A call that is larger by itself goes alone.
MAX_CALLS = 100
MAX_BYTES = 8 << 20


@dataclass(slots=True, kw_only=True)  # made for every pass: to freeze it would cost more than to fill it
class Scene:
    """Everything `plan` looks at."""

    run_id: str
    context: RunContext
    started: bool  # run_started is in the log
    fresh: Sequence[Call]  # issued, not in the log, in call order
    open: Mapping[str, Call]  # issued and not ended, fresh ones included
    dropped: Collection[str]  # nobody listens any more, not acted on yet
    outcome: Outcome | None
    here: Here
    inline_free: int  # inline steps this session may still start
    may_run: Callable[[str, str], bool]  # (step, queue): served, registered, local, a slot is free, no drain
    conflicts: Mapping[str, str]  # hook id → run that holds its token
    waits: Mapping[str, int]  # due times (ms) of recorded open waits
    rearm: bool  # make sure that the timer is armed
    timer_armed: bool
    deadline_fired: bool  # the run's deadline message is in our hand: arm it again if we think it early
    table: Table | None
    attributes: Mapping[str, str]  # of the run at its start; known only if it goes on as a new one
    now: int  # ms, server time
    entropy: Callable[[int], bytes]  # so many random bytes, for the seed of a child


class Dispatched(NamedTuple):
    """One row of the dispatch table, for logs and counters."""

    row: Row
    step: str


@dataclass(slots=True, init=False)
class Plan:
    facts: list[Fact]
    decisions: list[Decision]
    children: list[ChildStart]
    sends: list[Send]
    withdraws: list[str]
    starts: list[StepCall]  # to execute here once it is committed
    rows: list[Dispatched]
    partial: bool  # there is more to decide afterwards
    ends_run: bool

    def __init__(self) -> None:  # made for every pass: default factories take three times as long
        self.facts, self.decisions, self.children, self.sends = [], [], [], []
        self.withdraws, self.starts, self.rows = [], [], []
        self.partial = self.ends_run = False

    @property
    def empty(self) -> bool:
        return not (self.facts or self.decisions or self.sends or self.withdraws)


def plan(scene: Scene) -> Plan:
    """What to write now. Calls are recorded in the order they were issued."""
    made = Plan()
    if not scene.started:
        _begin(scene, made)
    free = scene.inline_free
    if scene.table is not None:
        free -= _recorded_steps(scene, made, free)
    calls = _portion(scene.fresh)
    made.partial = len(calls) < len(scene.fresh)
    for call in calls:
        if isinstance(call, StepCall):
            here = scene.here
            # What runs here under this id was started in a past that a fail-over took back: not beside it.
            alone = call.id not in here.in_flight and call.id not in here.detached
            may_run = alone and free > 0 and scene.may_run(call.name, call.queue or scene.context.queue)
            free -= _new_step(scene.context, made, call, scene.now, may_run=may_run, free=free)
        else:
            _record(scene, made, call)
    _drops(scene, made)
    if not made.partial and scene.outcome is not None:
        _end(scene, made, scene.outcome)
    else:
        _timer(scene, made, calls)
        if scene.deadline_fired:
            _deadline(scene, made)
    return made


def plan_steps(
    context: RunContext,
    steps: Sequence[StepCall],
    now: int,
    *,
    inline_free: int,
    may_run: Callable[[str, str], bool],
) -> Plan:
    """`plan` of a started run in which there is nothing to look at but these new steps, none of which runs
    here already. So it is from step to step, where a scene costs as much as the plan."""
    made, free = Plan(), inline_free
    calls = _portion(steps)
    made.partial = len(calls) < len(steps)
    for call in calls:
        may = free > 0 and may_run(call.name, call.queue or context.queue)
        free -= _new_step(context, made, call, now, may_run=may, free=free)
    return made


C = TypeVar("C", bound=Call)


def _portion(fresh: Sequence[C]) -> Sequence[C]:
    """The first calls, as many as one transition takes."""
    size = 0
    for count, call in enumerate(fresh):
        if isinstance(call, (StepCall, ChildCall)):
            size += len(call.input)
        if count == MAX_CALLS or (size > MAX_BYTES and count):
            return fresh[:count]
    return fresh


def _begin(scene: Scene, made: Plan) -> None:
    made.decisions.append(Decision(EventType.RUN_STARTED))
    _deadline(scene, made)


def _deadline(scene: Scene, made: Plan) -> None:
    context = scene.context
    if context.timeout:
        due = context.created_at + context.timeout
        made.sends.append(Send(Kind.RUN, DEADLINE, context.queue, due_at=due))


# --- steps ----------------------------------------------------------------------------------------


def step_send(scene_context: RunContext, call: StepCall, now: int, *, due_at: int = 0) -> Send:
    """The message that queues `call`."""
    payload = pack_step_message(StepMessage(scene_context, call.name, call.input, dict(call.options), now))
    return Send(Kind.STEP, call.id, call.queue or scene_context.queue, payload, due_at=due_at)


def _new_step(context: RunContext, made: Plan, call: StepCall, now: int, *, may_run: bool, free: int) -> int:
    """Returns the inline slots it took."""
    row = row_of_new(may_run_here=may_run, slot_free=free > 0)
    made.rows.append(Dispatched(row, call.id))
    made.decisions.append(Decision(EventType.STEP_CREATED, call.id, call.record()))
    if row is Row.INLINE:
        made.decisions.append(Decision(EventType.STEP_STARTED, call.id, mode="inline"))
        made.starts.append(call)
        return 1
    made.sends.append(step_send(context, call, now))
    return 0


def _recorded_steps(scene: Scene, made: Plan, free: int) -> int:
    """Dispatch the steps that are in the log and open. Returns the inline slots it took."""
    assert scene.table is not None
    took = 0
    for step in scene.table.steps:
        call = scene.open.get(step.id)
        if not isinstance(call, StepCall | ChildCall):
            continue
        row = row_of(step, scene.here)
        made.rows.append(Dispatched(row, step.id))
        if isinstance(call, ChildCall):  # its end comes by itself
            continue
        queue = call.queue or scene.context.queue
        alone = step.id not in scene.here.detached  # else it goes to the queue: single flight waits there
        may_run = alone and free - took > 0 and scene.may_run(call.name, queue)
        action = action_of(row, step, may_run_here=may_run)
        if action is Action.START:
            made.decisions.append(Decision(EventType.STEP_STARTED, step.id, mode="inline"))
            made.starts.append(call)
            took += 1
        elif action is Action.SEND:
            made.sends.append(step_send(scene.context, call, scene.now, due_at=step.due))
        elif action is Action.HAND_OVER:
            made.facts.append(_hand_over(scene, call, step))
    rows = {each.row for each in made.rows}
    if rows & RESCUED and not scene.table.rescue_armed:
        made.sends.append(Send(Kind.RESCUE, RESCUE, scene.context.queue))
    return took


def _hand_over(scene: Scene, call: StepCall, step: OpenStep) -> Fact:
    """The execution died with its worker: recorded, and the next one runs from the queue."""
    record = pack(StepRetrying(b"", 0, False))
    send = step_send(scene.context, call, scene.now)
    return Fact(EventType.STEP_RETRYING, call.id, record, epoch=step.epoch, send=send, cause="crash")


# --- the other calls --------------------------------------------------------------------------------


def _record(scene: Scene, made: Plan, call: Call) -> None:
    match call:
        case ChildCall():
            _child(scene, made, call)
        case WaitCall():
            made.decisions.append(
                Decision(EventType.WAIT_CREATED, call.id, due_in=call.due_in, due_at=call.due_at)
            )
        case HookCall() if call.id in scene.conflicts:
            record = HookConflict(call.token, scene.conflicts[call.id])
            made.decisions.append(Decision(EventType.HOOK_CONFLICT, call.id, pack(record)))
        case HookCall():
            data = pack(HookCreated(call.token, call.metadata, call.name))
            made.decisions.append(Decision(EventType.HOOK_CREATED, call.id, data, token=call.token))
        case DisposeCall():
            made.decisions.append(Decision(EventType.HOOK_DISPOSED, call.id))
        case AttributesCall():
            data = pack(AttributesSet(dict(call.changes)))
            made.decisions.append(Decision(EventType.ATTR_SET, call.id, data))
        case PatchCall():
            data = pack(PatchRecorded(call.change_id))
            made.decisions.append(Decision(EventType.PATCH_RECORDED, call.id, data))
        case _:
            raise AssertionError(f"no way to record {call}")


def _child(scene: Scene, made: Plan, call: ChildCall) -> None:
    parent = scene.context
    queue = call.queue or parent.queue
    context = RunContext(
        workflow=call.name,
        version=call.version,
        spec=parent.spec,
        queue=queue,
        created_at=scene.now,
        root_run_id=parent.root_run_id,
        parent_run_id=scene.run_id,
        parent_step=call.id,
        deployment=parent.deployment,
        traceparent=parent.traceparent,
        timeout=call.timeout,
    )
    message = RunMessage(context, scene.entropy(16), call.input, b"")
    record = StepCreated(
        call.name, call.input, call.queue, {}, child_run_id=call.run_id, version=call.version
    )
    made.decisions.append(
        Decision(EventType.STEP_CREATED, call.id, pack(record), mode="child", detach=call.detach)
    )
    fields = run_fields(message)
    if call.attributes:
        fields["attributes"] = orjson.dumps(dict(call.attributes)).decode()
    made.children.append(
        ChildStart(call.run_id, call.id, fields, call.input, queue, pack_run_message(message))
    )


def _drops(scene: Scene, made: Plan) -> None:
    """What nobody listens to any more: a waiting step never starts, a timer never fires."""
    if not scene.dropped:
        return
    fresh = {call.id for call in scene.fresh}
    for id in scene.dropped:
        if id not in fresh and id not in scene.here.in_flight:
            made.withdraws.append(id)


def _timer(scene: Scene, made: Plan, calls: Sequence[Call]) -> None:
    """One timer message per run, due at its earliest open wait."""
    fresh = [call for call in calls if isinstance(call, WaitCall)]
    if not (fresh or scene.waits or scene.timer_armed):
        return
    dropped = set(scene.dropped)
    recorded = [due for id, due in scene.waits.items() if id not in dropped]
    relative = [call.due_in for call in fresh if not call.due_at]
    absolute = [call.due_at for call in fresh if call.due_at]
    if relative:
        made.sends.append(Send(Kind.RUN, TIMER, scene.context.queue, due_in=min(relative)))
    if absolute:
        made.sends.append(Send(Kind.RUN, TIMER, scene.context.queue, due_at=min(absolute)))
    if recorded and scene.rearm:
        made.sends.append(Send(Kind.RUN, TIMER, scene.context.queue, due_at=min(recorded)))
    if scene.timer_armed and not recorded and not fresh:
        made.withdraws.append(TIMER)


# --- the end ------------------------------------------------------------------------------------------


def _end(scene: Scene, made: Plan, outcome: Outcome) -> None:
    match outcome:
        case Returned(data):
            made.decisions.append(Decision(EventType.RUN_COMPLETED, data=data))
        case Raised(data, code):
            made.decisions.append(Decision(EventType.RUN_FAILED, data=pack(Failed(code, data))))
        case Cancelled():
            made.decisions.append(Decision(EventType.RUN_CANCELLED, data=pack(Failed(CANCELLED, b""))))
        case ContinuedAsNew():
            made.children.append(_successor(scene, outcome))
            made.decisions.append(Decision(EventType.RUN_COMPLETED))
        case _:
            raise AssertionError(f"no way to end with {outcome}")
    made.ends_run = True


def _successor(scene: Scene, outcome: ContinuedAsNew) -> ChildStart:
    """The run that takes over: same workflow, partition, parent, root and attributes, new input and log."""
    context, given = replace(scene.context, created_at=scene.now), outcome.input
    message = RunMessage(context, scene.entropy(16), given, b"")
    run_id = child_run_id(scene.run_id, "next")
    fields = run_fields(message) | {"continued_from": scene.run_id}
    attributes = {**scene.attributes, **outcome.attributes}
    if kept := {name: value for name, value in attributes.items() if value is not None}:
        fields["attributes"] = orjson.dumps(kept).decode()
    return ChildStart(run_id, "", fields, given, context.queue, pack_run_message(message))
