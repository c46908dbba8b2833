"""What code in a body calls, and how an event of the log answers it.

One object per body. The upper half issues calls: it gives each its id, hands it to the cursor and
returns a future. The lower half takes decisive events, one at a time, and completes these futures.
An event nobody waits for any more (a payload for a closed hook, the end of a dropped wait, a second
end) is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from world_redis.events import Event, EventType
from world_redis.hooks import address_of
from world_redis.ids import child_run_id
from world_redis.messages import RunContext

from ..core.calls import (
    AttributesCall,
    Call,
    CallIds,
    ChildCall,
    HookCall,
    PassedOver,
    PatchCall,
    Payload,
    StepCall,
    WaitCall,
)
from ..core.cursor import Cursor
from ..core.records import (
    CANCELLED,
    EXHAUSTED,
    CancelRequested,
    Failed,
    unpack,
)
from ..sdk.context import WorkflowMetadata
from ..sdk.definitions import Step, WorkflowDefinition
from ..sdk.errors import (
    FatalError,
    RunCancelledError,
    WorkflowRunFailedError,
    error_text,
)
from ..sdk.values import decode_failure
from .bodyhooks import Hook, check_class
from .bodyloop import STUCK_AFTER, BodyFuture, BodyLoop, BodyTimer
from .seeds import Seeds

Decode: TypeAlias = Callable[[bytes], Any]


class CallFuture(BodyFuture):
    """Completes with the end of a call. Cancelling it drops the call."""

    __slots__ = ("_calls", "call", "decode", "unit")

    def __init__(self, calls: BodyCalls, call: StepCall | ChildCall | WaitCall, decode: Decode):
        super().__init__(loop=calls.loop)
        self._calls = calls
        self.call = call
        self.decode = decode
        self.unit = calls.unit

    @property
    def waits_for(self) -> str:
        return f"{self.call.label} ({self.call.id})"

    def cancel(self, msg: Any = None) -> bool:
        if not self.done() and not self._calls.release(self):
            return True  # the task stays suspended until the step has ended
        return super().cancel(msg)

    def cancel_now(self) -> None:
        """The step has ended; now the cancelled awaiter may go."""
        super().cancel()


class BodyCalls:
    """See the module. It is what `current_body()` returns in a body."""

    def __init__(
        self,
        workflow: WorkflowDefinition[Any, Any],
        context: RunContext,
        run_id: str,
        seed: bytes,
        created_at: int,
        *,
        stuck_after: float = STUCK_AFTER,
    ) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.cursor = Cursor()
        self.loop: BodyLoop = BodyLoop(  # type: ignore[abstract]
            self, run_id, stuck_after=stuck_after
        )
        self.open: dict[str, Call] = {}  # not ended
        self.dropped: set[str] = set()  # of `open`: the awaiter was cancelled, nobody listens
        self.stopping: set[str] = set()  # of `open`: it was cancelled too, but waits for the end
        self.unit: int = 0  # deliveries so far; what is issued between two is recorded together
        self.replaying = False
        self.cancel_reason: str | None = None  # set by a cancel request
        self.attributes: dict[str, str | None] = {}  # set (text) and removed (None) so far
        self.passed_over: list[PassedOver] = []  # not told yet
        self._now = created_at  # ms
        self._created_at = created_at
        self._context = context
        self._seeds = Seeds(seed)
        self._ids = CallIds()
        self._waiters: dict[str, CallFuture | BodyTimer] = {}
        self._hooks: dict[str, Hook] = {}
        self._patched: dict[str, bool] = {}

    @property
    def dropping(self) -> bool:
        return self.loop.dropping

    def check(self) -> None:
        self.loop.check()

    # --- issuing ----------------------------------------------------------------------------------

    def step(
        self, step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> asyncio.Future[Any]:
        inert = self.loop.hold()
        if inert is not None:
            return inert
        signature = step.signature
        data = signature.encode_arguments(args, kwargs)
        call = StepCall(self._ids.next("s"), step.name, data, step.queue, step.overrides, step.cancellable)
        return self._issue_awaited(call, signature.decode_result)

    def child(
        self,
        workflow: WorkflowDefinition[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        resolved: bool,
    ) -> tuple[ChildCall, asyncio.Future[Any]]:
        self.check()
        target, options = workflow.for_new_runs(), workflow.options
        if (options.delay, options.start_at, options.idempotency_key) != (None, None, None):
            raise ValueError(
                f"{workflow.name}: a child started in a body starts at once and is recorded with "
                f"it; sleep() before, and leave idempotency_key out"
            )
        data = target.signature.encode_arguments(args, kwargs, with_defaults=True)
        timeout = options.timeout if options.timeout is not None else target.timeout
        id = self._ids.next("s")
        call = ChildCall(
            id=id,
            name=target.name,
            version=target.version,
            run_id=child_run_id(self.run_id, id),
            input=data,
            queue=options.queue or target.queue,
            timeout=0 if timeout is None else round(timeout * 1000),
            attributes=options.attributes,
            detach=options.detach,
            resolved=resolved,
        )
        return call, self._issue_awaited(call, target.signature.decode_result)

    def wait(self, due_in: int, due_at: int) -> asyncio.Future[None]:
        inert = self.loop.hold()
        if inert is not None:
            return inert
        call = WaitCall(self._ids.next("w"), due_in, due_at)
        return self._issue_awaited(call, _nothing)

    def start_timer(self, timer: BodyTimer, milliseconds: int) -> None:
        call = WaitCall(self._ids.next("w"), milliseconds)
        timer.wait_id = call.id
        self._waiters[call.id] = timer
        self._issue(call)

    def open_hook(self, cls: type[Any], token: str | None, metadata: Any) -> tuple[str, str]:
        self.check()
        if token == "" or (token is not None and address_of(token) is not None):
            raise ValueError(f"hook token {token!r} is empty or has the form of a default token")
        check_class(cls, self._codec)
        data = b"" if metadata is None else self._codec.encode(metadata, path="hook metadata")
        id = self._ids.next("h")
        made = token or self._seeds.hook_token(self.run_id, id)
        self._hooks[id] = Hook(self.loop, id, made)
        self._issue(HookCall(id, made, token is not None, cls.__qualname__, data))
        return id, made

    def dispose(self, hook_id: str) -> None:
        self.check()
        hook = self._hooks[hook_id]
        if hook.dispose() and hook.conflict is None:
            self.open.pop(hook_id, None)
            self.cursor.dispose(hook_id)

    def set_attributes(self, changes: Mapping[str, str | None]) -> None:
        self.check()
        call = AttributesCall(self._ids.next("a"), dict(changes))
        self.attributes.update(changes)
        self.loop.turns = 0
        self.cursor.issue(call)

    def patched(self, change_id: str) -> bool:
        self.check()
        known = self._patched.get(change_id)
        if known is None:
            answer = self.cursor.patched(change_id)
            known = self._patched[change_id] = isinstance(answer, PatchCall) or answer
        return known

    def release(self, future: CallFuture) -> bool:
        """The awaiter of a call is cancelled. False: it has to wait until the step has ended."""
        call = future.call
        if self.loop.dropping or call.id not in self.open:
            return True
        # What was issued since the last delivery is not recorded yet, in this and in every replay.
        if isinstance(call, StepCall) and call.cancellable and future.unit != self.unit:
            self.stopping.add(call.id)
            return False
        self._waiters.pop(call.id, None)
        self._drop(call.id)
        return True

    def cancel_timer(self, timer: BodyTimer) -> None:
        if self._waiters.pop(timer.wait_id, None) is not None:
            self._drop(timer.wait_id)

    def _drop(self, id: str) -> None:
        if id in self.cursor.fresh:
            self.cursor.void(id)
            del self.open[id]
        else:
            self.dropped.add(id)

    def _issue_awaited(self, call: StepCall | ChildCall | WaitCall, decode: Decode) -> asyncio.Future[Any]:
        future = CallFuture(self, call, decode)
        self._waiters[call.id] = future
        self._issue(call)
        return future

    def _issue(self, call: Call) -> None:
        self.loop.turns = 0
        self.open[call.id] = call
        self.cursor.issue(call)

    # --- reading ----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Body time: the largest `at` delivered so far, so it never runs backwards."""
        return self._now

    def random(self) -> Random:
        self.check()
        return self._seeds.random()

    def uuid4(self) -> UUID:
        self.check()
        return self._seeds.uuid4()

    def metadata(self) -> WorkflowMetadata:
        self.check()
        context = self._context
        return WorkflowMetadata(
            name=context.workflow,
            version=context.version,
            run_id=self.run_id,
            root_run_id=context.root_run_id,
            parent_run_id=context.parent_run_id or None,
            queue=context.queue,
            started_at=datetime.fromtimestamp(self._created_at / 1000, UTC),
        )

    def next_payload(self, hook_id: str) -> asyncio.Future[Payload]:
        return self.loop.hold() or self._hooks[hook_id].next_payload()

    def pass_over(self, hook_id: str, slot: int, reason: str) -> None:
        """The body could not read the payload in this slot."""
        self.passed_over.append(PassedOver(hook_id, slot, self.unit, reason))

    def hook_conflict(self, hook_id: str) -> asyncio.Future[str | None]:
        return self.loop.hold() or self._hooks[hook_id].ask_for_conflict()

    def read(self, data: bytes, annotation: Any, path: str) -> Any:
        return self._codec.decode(data, annotation, path=path)

    @property
    def _codec(self) -> Any:
        return self.workflow.registry.codec

    # --- answering --------------------------------------------------------------------------------

    def tick(self, at: int) -> None:
        """A decisive event of this time (ms) is delivered."""
        self.unit += 1
        self.loop.turns = 0
        if at > self._now:
            self._now = at

    def deliver(self, event: Event) -> None:
        """Let the body observe one decisive event. Raises ValueError or SerializationError when
        what it holds cannot be read."""
        match event.type:
            case EventType.STEP_COMPLETED | EventType.STEP_FAILED | EventType.WAIT_COMPLETED:
                self._deliver_end(event)
            case EventType.HOOK_RECEIVED | EventType.HOOK_CREATED | EventType.HOOK_CONFLICT:
                self._deliver_hook(event)
            case EventType.RUN_CANCEL_REQUESTED:
                self._deliver_cancel(event)
            case _:
                raise ValueError(f"{event.type} is not decisive: {event}")

    def _deliver_end(self, event: Event) -> None:
        call = self.open.pop(event.id, None)
        waiter = self._waiters.pop(event.id, None)
        self.dropped.discard(event.id)
        if call is None or waiter is None:
            return
        if isinstance(waiter, BodyTimer):
            self.loop.fire(waiter)
        elif event.id in self.stopping:
            self.stopping.discard(event.id)
            waiter.cancel_now()
        elif event.type is EventType.STEP_FAILED:
            waiter.set_exception(self._error_of(call, unpack(Failed, event.data)))
            waiter.exception()  # nobody has to look at it: a child that was only started
        else:
            waiter.set_result(waiter.decode(event.data))

    def _error_of(self, call: Call, failed: Failed) -> Exception:
        error = decode_failure(failed.failure, self._codec.types) if failed.failure else None
        if isinstance(call, ChildCall):
            if failed.code == CANCELLED:
                return error or RunCancelledError(call.run_id)
            return WorkflowRunFailedError(call.run_id, error, error_code=failed.code)
        if error is None:
            return FatalError(f"{call.label} failed: {failed.code}")
        if failed.code == EXHAUSTED:
            exhausted = FatalError(f"{call.label} failed in its last attempt: {error_text(error)}")
            exhausted.__cause__ = error
            return exhausted
        return error

    def _deliver_hook(self, event: Event) -> None:
        hook = self._hooks.get(event.id)
        if event.type is EventType.HOOK_CONFLICT:
            self.open.pop(event.id, None)
        if hook is not None:
            hook.deliver(event)

    def _deliver_cancel(self, event: Event) -> None:
        if self.cancel_reason is None:
            self.cancel_reason = unpack(CancelRequested, event.data).reason
            if self.loop.main is not None:
                self.loop.main.cancel()

    # --- the log's side ---------------------------------------------------------------------------

    def take_revived(self) -> None:
        """Calls dropped here that another writer had recorded: they are open, and dropped."""
        for call in self.cursor.revived:
            self.open[call.id] = call
            self.dropped.add(call.id)
        self.cursor.revived.clear()

    def forget(self, id: str) -> None:
        """A dropped call was withdrawn: no event will end it."""
        if id in self.dropped:
            self.dropped.discard(id)
            self.open.pop(id, None)

    def is_listening(self) -> bool:
        """Whether an event can still reach the body."""
        return len(self.open) > len(self.dropped)

    def finish(self) -> None:
        """The body has ended: of what is not recorded, only what was promised is still sent."""
        for key, call in list(self.cursor.fresh.items()):
            promised = isinstance(call, AttributesCall | PatchCall) or (
                isinstance(call, ChildCall) and call.resolved
            )
            if not promised:
                self.cursor.void(key)
                self.open.pop(call.id, None)


def _nothing(_: bytes) -> None:
    return None
