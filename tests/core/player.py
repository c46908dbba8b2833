"""Plays the log of one run in memory: it is the store, the steps and the outside world.

`Player` keeps a live body and the log it would have. `complete`, `fail`, `fire`, `receive` and
`cancel` write what happens outside and let the live body go on; whatever it asks for is recorded at
once. `replay` builds another body from any prefix of the log.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from worker.core.calls import (
    AttributesCall,
    Call,
    ChildCall,
    DisposeCall,
    HookCall,
    PatchCall,
    Raised,
    Returned,
    StepCall,
    WaitCall,
)
from worker.core.records import (
    EXHAUSTED,
    AttributesSet,
    CancelRequested,
    Failed,
    HookConflict,
    HookCreated,
    HookReceived,
    PatchRecorded,
    StepCreated,
    pack,
)
from worker.runtime.body import Body
from worker.sdk.definitions import Step, WorkflowDefinition
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows
from worker.sdk.values import decode_failure, encode_failure
from world_redis.events import RULE, Event, EventType
from world_redis.messages import RunContext

RUN_ID = "wrun_01JEXAMP0E0000000000000007"
SEED = bytes(range(16))
CREATED_AT = 1_764_000_000_000


class Player:
    """See the module. With `live=False` the body is built anew from the log at every move."""

    started: ClassVar[list["Player"]] = []  # since the last look; a fixture closes them

    def __init__(
        self,
        workflow: WorkflowDefinition[Any, Any],
        *args: Any,
        live: bool = True,
        stuck_after: float = 10.0,
    ) -> None:
        self.started.append(self)
        self.workflow = workflow
        self.registry: Workflows = workflow.registry
        self.live = live
        self.now = CREATED_AT
        self.log: list[Event] = []
        self.sizes: list[int] = []  # lengths of the log at which the body was quiet and recorded
        self.states: list[Any] = []  # of the body, at each of `sizes`
        self._input = workflow.signature.encode_arguments(args, {}, with_defaults=True)
        self._stuck_after = stuck_after
        self._bodies: list[Body] = []
        self.issued: dict[Body, list[Sequence[object]]] = {}
        self.write(EventType.RUN_CREATED)
        self.write(EventType.RUN_STARTED)
        self.body = self.replay(len(self.log))
        self.record()

    # --- bodies ---------------------------------------------------------------------------------

    def build(self) -> Body:
        """A body that knows nothing yet."""
        context = RunContext(self.workflow.name, self.workflow.version, 1, "default", CREATED_AT, RUN_ID)
        body = Body(
            self.workflow,
            context,
            RUN_ID,
            SEED,
            CREATED_AT,
            self._input,
            stuck_after=self._stuck_after,
        )
        self._bodies.append(body)
        self.watch(body)
        return body

    def watch(self, body: Body) -> None:
        """Keep what this body issues; it forgets calls that are recorded."""
        kept = self.issued[body] = []
        issue = body._cursor.issue

        def remember(call: Call) -> None:
            kept.append(signature(call))
            issue(call)

        body._cursor.issue = remember  # type: ignore[method-assign]

    def state(self, body: Body) -> Any:
        """Everything a body shows to the outside, and all it has issued; comparable."""
        return {
            "issued": self.issued[body],
            "fresh": [call.id for call in body.fresh],
            "open": sorted(body.open),
            "dropped": sorted(body.dropped),
            "stopping": sorted(body.stopping),
            "outcome": body.outcome,
            "problem": body.problem,
            "position": body.position,
            "waits": body.waiting_for(),
        }

    def replay(self, size: int | None = None) -> Body:
        """A body built from the first `size` entries of the log."""
        body = self.build()
        body.learn(self.log[:size])
        body.run()
        return body

    def close(self) -> int:
        """Drop every body built here; answers how many coroutines survived."""
        return sum(body.close() for body in self._bodies)

    # --- the log --------------------------------------------------------------------------------

    def write(self, type: EventType, id: str = "", data: bytes = b"", extra: str = "") -> Event:
        """Append an event, one millisecond after the last one."""
        self.now += 1
        slot = len(self.log) + 1
        mark = slot.to_bytes(8) if RULE[type].decisive else b""
        event = Event(slot, type, id, self.now, mark, data, extra)
        self.log.append(event)
        return event

    def record(self) -> None:
        """Write what the body asks for, and let it see that, until it asks for nothing more."""
        body = self.body
        while body.fresh and body.problem is None:
            for call in body.fresh:
                self.write(*create_of(call))
            self.sync()
            body = self.body
        self.sizes.append(len(self.log))
        self.states.append(copy.deepcopy(self.state(body)))

    def sync(self) -> None:
        """Let the body see the whole log."""
        if self.live:
            self.body.learn(self.log[self.body.seen :])
            self.body.run()
        else:
            self.body.close()
            self.body = self.replay()

    def move(self, type: EventType, id: str = "", data: bytes = b"") -> None:
        """Something happens outside; the body goes on."""
        self.write(type, id, data)
        self.sync()
        self.record()

    # --- what happens outside -------------------------------------------------------------------

    def complete(self, id: str, value: Any = None) -> None:
        self.move(EventType.STEP_COMPLETED, id, self.result(id, value))

    def result(self, id: str, value: Any) -> bytes:
        """The recorded result `value` of a step or child."""
        return signature_of(self, id).encode_result(value)

    def fail(self, id: str, error: BaseException, code: str = EXHAUSTED) -> None:
        self.move(EventType.STEP_FAILED, id, pack(Failed(code, encode_failure(error))))

    def fire(self, id: str) -> None:
        """A wait is over."""
        call = self.body.open.get(id)
        if isinstance(call, WaitCall):
            self.now = max(self.now + call.due_in, call.due_at)
        self.move(EventType.WAIT_COMPLETED, id)

    def receive(self, id: str, payload: Any) -> None:
        data = self.registry.codec.encode(payload, type(payload), path="payload")
        self.move(EventType.HOOK_RECEIVED, id, pack(HookReceived(data)))

    def cancel(self, reason: str = "") -> None:
        self.move(EventType.RUN_CANCEL_REQUESTED, "", pack(CancelRequested(reason)))

    # --- questions ------------------------------------------------------------------------------

    @property
    def open(self) -> list[str]:
        """``step charge (s1)`` for every open call."""
        return [f"{short(call.label)} ({call.id})" for call in self.body.open.values()]

    def check_every_prefix(self) -> None:
        """A body built from any prefix of the log asks for the same calls in the same order."""
        states = dict(zip(self.sizes, self.states, strict=True))
        for size in range(1, len(self.log) + 1):
            body = self.replay(size)
            assert not body.misled
            if size in states:
                found, expected = self.state(body), states[size]
                assert found == expected, f"after {size} events: {found} and not {expected}"
            else:
                assert type(body.problem).__name__ in ("NoneType", "Deadlock"), f"after {size}"
            body.close()


@dataclass
class Approval(BaseHook):
    """A payload."""

    yes: bool
    by: str = "nobody"


def returned(player: Player) -> Any:
    """The result of a body that returned."""
    assert isinstance(player.body.outcome, Returned), (player.body.outcome, player.body.problem)
    return player.registry.codec.decode(player.body.outcome.data)


def raised(player: Player) -> BaseException:
    """The error of a body that raised."""
    assert isinstance(player.body.outcome, Raised), (player.body.outcome, player.body.problem)
    return decode_failure(player.body.outcome.data)


def short(label: str) -> str:
    """A label without the function a test's step is defined in."""
    kind, _, name = label.partition(" ")
    return f"{kind} {name.rpartition('.')[2]}".strip()


def signature_of(player: Player, id: str) -> Any:
    call = player.body.open[id]
    if isinstance(call, ChildCall):
        return player.registry.workflows[call.name][call.version].signature
    assert isinstance(call, StepCall)
    step: Step[Any, Any] = player.registry.steps[call.name]
    return step.signature


def signature(call: Call) -> Sequence[object]:
    """What identifies an issued call."""
    shown = (call.id, call.label)
    if isinstance(call, StepCall | ChildCall):
        return (*shown, call.input)
    if isinstance(call, WaitCall):
        return (*shown, call.due_in, call.due_at)
    return (*shown, call.token) if isinstance(call, HookCall) else shown


def create_of(call: Call) -> tuple[EventType, str, bytes]:
    """The event that records a call."""
    match call:
        case StepCall():
            record = StepCreated(call.name, call.input, call.queue, dict(call.options))
            return EventType.STEP_CREATED, call.id, pack(record)
        case ChildCall():
            record = StepCreated(
                call.name,
                call.input,
                call.queue,
                child_run_id=call.run_id,
                version=call.version,
            )
            return EventType.STEP_CREATED, call.id, pack(record)
        case WaitCall():
            return EventType.WAIT_CREATED, call.id, b""
        case HookCall(token="taken"):
            return EventType.HOOK_CONFLICT, call.id, pack(HookConflict("taken", "wrun_other"))
        case HookCall():
            return EventType.HOOK_CREATED, call.id, pack(HookCreated(call.token, call.metadata))
        case DisposeCall():
            return EventType.HOOK_DISPOSED, call.id, b""
        case AttributesCall():
            return EventType.ATTR_SET, call.id, pack(AttributesSet(dict(call.changes)))
        case PatchCall():
            return EventType.PATCH_RECORDED, call.id, pack(PatchRecorded(call.change_id))
    raise AssertionError(call)
