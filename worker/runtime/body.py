"""One live workflow body: its code, suspended between two events of its log.

`learn` takes the log, `run` delivers the decisive events one at a time, with the body quiet between
two, and `fresh` is what it asks for beyond the log. Live and replay take this one path. `advance`
goes ahead of the log: it delivers a fact that is about to be committed, or a wake's news, and a later
`learn` confirms it or finds the body *misled*; then it is dropped and another one is built from the log.

What can go wrong is found here, in the driver, and told through `problem`. It is never raised into
user code, where an ``except Exception`` would swallow it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from structlog.contextvars import bind_contextvars

from world_redis.events import START, Event, EventType, Position
from world_redis.messages import RunContext

from ..core.calls import (
    Call,
    Cancelled,
    ContinuedAsNew,
    Deadlock,
    Divergence,
    Drift,
    Outcome,
    PassedOver,
    Problem,
    Raised,
    Returned,
    Spinning,
    Stuck,
    Undecodable,
)
from ..core.records import USER_ERROR
from ..sdk.calls import ContinueAsNew
from ..sdk.definitions import WorkflowDefinition
from ..sdk.errors import InternalError, SerializationError
from ..sdk.values import encode_failure
from .bodycalls import BodyCalls
from .bodyloop import STUCK_AFTER, Rest, log
from .frames import frames_of
from .teardown import tear_down
from .watchdog import Watch

_OVER = frozenset({EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED})


class Body:
    """See the module."""

    def __init__(
        self,
        workflow: WorkflowDefinition[Any, Any],
        context: RunContext,
        run_id: str,
        seed: bytes,
        created_at: int,
        input: bytes,
        *,
        stuck_after: float = STUCK_AFTER,
    ) -> None:
        self.outcome: Outcome | None = None
        self.problem: Problem | None = None
        self.misled = False  # the log took another way than `advance` or `patched` bet on
        self.position: Position = START  # of the last decisive event delivered and committed
        self.closed = False
        self._calls = BodyCalls(workflow, context, run_id, seed, created_at, stuck_after=stuck_after)
        self._cursor = self._calls.cursor
        self._loop = self._calls.loop
        # A fresh context: nothing of the delivery that happens to start it may stick to a body.
        self._context = contextvars.Context()
        self._context.run(bind_contextvars, run_id=run_id, workflow=workflow.name)
        self._workflow = workflow
        self._input = input
        self._started = False
        self._built = 0  # highest slot learned before the start: up to here it is a replay
        self._over = False  # the log holds the run's end
        self._decisive: deque[Event] = deque()  # learned, not delivered
        self._ahead: deque[Event] = deque()  # delivered, not confirmed by the log
        self._unreadable: Undecodable | None = None

    # --- what the session reads -------------------------------------------------------------------

    @property
    def fresh(self) -> list[Call]:
        """The calls that are not in the log, in the order they were issued."""
        return list(self._cursor.fresh.values())

    @property
    def open(self) -> Mapping[str, Call]:
        """Every call that has not ended, by short id."""
        return self._calls.open

    @property
    def dropped(self) -> Set[str]:
        """Ids in `open` whose awaiter was cancelled: nobody listens any more."""
        return self._calls.dropped

    @property
    def stopping(self) -> Set[str]:
        """Ids in `open` of cancellable steps whose awaiter was cancelled but waits for their end.

        Each is to be told to stop, and must end by an event: withdrawing it would hang the body.
        """
        return self._calls.stopping

    @property
    def cancel_requested(self) -> bool:
        """Whether a cancel request was delivered."""
        return self._calls.cancel_reason is not None

    @property
    def replaying(self) -> bool:
        """Whether what was in the log when the body was built is being delivered."""
        return self._calls.replaying

    @property
    def seen(self) -> int:
        """The highest slot learned."""
        return self._cursor.seen

    @property
    def drifts(self) -> Sequence[Drift]:
        """Calls whose arguments differ from the recorded ones. The recorded answer is used."""
        return self._cursor.drifts

    @property
    def passed_over(self) -> Sequence[PassedOver]:
        """Hook payloads the body could not read, in replay or not, since `take_passed_over`."""
        return self._calls.passed_over

    @property
    def is_quiet(self) -> bool:
        """Whether it waits for events, and for nothing else: what it asked for and saw is in the log."""
        wants = self._cursor.fresh or self.dropped or self.stopping or self._ahead
        return not wants and self.outcome is None and self.problem is None

    @property
    def betting(self) -> bool:
        """Whether it was advanced on what the log has not confirmed."""
        return bool(self._ahead)

    def waiting_for(self) -> tuple[str, ...]:
        """Where the tasks of the body wait, one line each."""
        return frames_of(self._loop.pending())

    # --- what the session does --------------------------------------------------------------------

    def learn(self, events: Sequence[Event]) -> None:
        """Take log entries in slot order; those already known are skipped.

        Raises:
            InternalError: a slot is missing between these and what is known.
        """
        for event in events:
            if event.slot <= self._cursor.seen:
                continue
            if event.slot != self._cursor.seen + 1:
                raise InternalError(f"slot {event.slot} follows slot {self._cursor.seen}")
            try:
                self._cursor.learn(event)
            except ValueError as error:
                self.problem = Undecodable(event.slot, event.type.value, str(error))
            self._over |= event.type in _OVER
            if event.decisive:
                self._learn_decisive(event)
        self.misled |= self._cursor.contradicted

    def confirm(self, ends: int, created: list[str], head: int, position: Position) -> bool:
        """Up to slot `head` the log went on with `ends` decisive events, the creates of these calls, in this
        order, and what no body looks at; it stands at `position` then. True: the ends are those of the last
        `advance`, the calls are the next to be recorded, and all is done as `learn` and `run` would have;
        False: nothing is, they have to look."""
        fits = (
            self._started
            and not self._decisive
            and len(self._ahead) == ends == position.decided - self.position.decided
            and (ends > 0 or position == self.position)  # an equal count alone may be that of another log
            and self.problem is None
            and self._cursor.confirm(created, head)
        )
        if fits:
            self._ahead.clear()
            self.position = position
        return fits

    def run(self) -> None:
        """Start the body if it was not, and deliver every decisive event learned."""
        if not self._may_go_on():
            return
        if self._started and not self._decisive:
            self._check_log()  # there is nothing to deliver: the body need not be driven
            self._conclude()
        else:
            self._drive(self._deliver_learned)

    def advance(self, events: Sequence[Event]) -> None:
        """Deliver decisive events that are about to be committed (slot 0, no mark, `at` as committed), or
        that the log is said to hold."""

        def ahead(watch: Watch) -> None:
            self._deliver_learned(watch)
            for event in events:
                if self._is_stopped(watch):
                    return
                self._ahead.append(event)
                self._deliver(event)

        if self._may_go_on():
            self._drive(ahead)

    def take_passed_over(self) -> Sequence[PassedOver]:
        """They are told by the caller now."""
        taken, self._calls.passed_over = self._calls.passed_over, []
        return taken

    def withdrawn(self, ids: Sequence[str]) -> None:
        """These dropped calls were withdrawn: no event will end them."""
        for id in ids:
            self._calls.forget(id)

    def close(self) -> int:
        """Drop the body from memory; answers how many coroutines could not be closed.

        User code in ``finally`` may run, but every call into the SDK raises `BodyDropped` and
        nothing is recorded.
        """
        if self.closed:
            return 0
        self.closed = True
        left = tear_down(self._loop)
        if not left:
            self._loop.forget()
        return left

    # --- delivering -------------------------------------------------------------------------------

    def _may_go_on(self) -> bool:
        if self.closed:
            raise InternalError("a dropped body was driven")
        if isinstance(self.problem, Deadlock):
            self.problem = None
        return not self.misled and self.problem is None

    def _drive(self, work: Callable[[Watch], None]) -> None:
        watch = self._loop.drive(work)
        if watch.fired:
            self.problem = Stuck(watch.frames)
        self._conclude()

    def _deliver_learned(self, watch: Watch) -> None:
        if not self._started:
            self._started = True
            self._built = self._cursor.seen
            self._unit(self._begin)
        while not self._is_stopped(watch):
            self._check_log()
            if self._is_stopped(watch) or not self._decisive:
                return
            event = self._decisive.popleft()
            self._deliver(event)
            self._stand_at(event)

    def _deliver(self, event: Event) -> None:
        self._calls.tick(event.at)
        self._unit(self._observe, event)

    def _unit(self, work: Callable[..., None], *args: Any) -> None:
        """Let the body go on until it is quiet."""
        if self.outcome is not None:
            return
        self._calls.replaying = self._is_replay()
        self._context.run(work, *args)
        rest = self._loop.turn()
        if rest is Rest.SPINNING:
            self.problem = Spinning(self.waiting_for())
        elif self._unreadable is not None:
            self.problem = self._unreadable
        elif rest is Rest.QUIET:
            self._look_for_end()

    def _begin(self) -> None:
        workflow = self._workflow
        try:
            args, kwargs = workflow.signature.decode_arguments(self._input)
        except SerializationError as error:
            self._unreadable = Undecodable(0, f"{workflow.name}() arguments", str(error))
            return
        self._loop.main = self._loop.spawn(workflow.fn(*args, **kwargs), workflow.name, self._context)

    def _observe(self, event: Event) -> None:
        try:
            self._calls.deliver(event)
        except (ValueError, SerializationError) as error:
            self._unreadable = Undecodable(event.slot, f"{event.type} {event.id}", str(error))

    def _is_replay(self) -> bool:
        if self._over:
            return True
        left = self._decisive
        return bool(left and left[0].slot <= self._built) or self._cursor.is_ahead(self._built)

    def _is_stopped(self, watch: Watch) -> bool:
        return self.problem is not None or self.misled or watch.fired

    # --- the log ----------------------------------------------------------------------------------

    def _learn_decisive(self, event: Event) -> None:
        if not self._ahead:
            self._decisive.append(event)
        elif _confirms(event, self._ahead[0]):
            self._ahead.popleft()
            self._stand_at(event)
        else:
            self.misled = True

    def _stand_at(self, event: Event) -> None:
        self.position = Position(self.position.decided + 1, event.slot, event.mark)

    def _check_log(self) -> None:
        """Hold what the body asked for against the log up to its next decisive event."""
        upto = self._decisive[0].slot if self._decisive else None
        try:
            mismatch = self._cursor.match(upto)
        except ValueError as error:
            self.problem = Undecodable(self._cursor.seen, "a create event", str(error))
            return
        self._calls.take_revived()
        if mismatch is None:
            return
        if mismatch.guessed:
            self.misled = True
            return
        self.problem = Divergence(mismatch.slot, mismatch.recorded, mismatch.called, self.waiting_for())

    # --- the end ----------------------------------------------------------------------------------

    def _look_for_end(self) -> None:
        main, escaped = self._loop.main, self._loop.escaped
        if escaped is not None:
            self.outcome = self._raised(escaped)
        elif main is not None and main.done():
            self.outcome = self._outcome_of(main)
        else:
            return
        self._calls.finish()
        left = self.waiting_for()
        if left and isinstance(self.outcome, Returned) and not self.replaying:
            log.warning("%s returned while its tasks were running: %s", self._workflow.name, "; ".join(left))

    def _outcome_of(self, main: asyncio.Task[Any]) -> Outcome:
        reason = self._calls.cancel_reason
        if main.cancelled():
            if reason is not None:
                return Cancelled(reason)
            return self._raised(asyncio.CancelledError("the workflow cancelled itself"))
        error = main.exception()
        if isinstance(error, ContinueAsNew):
            return ContinuedAsNew(error.input, self._calls.attributes)
        if error is not None:
            return self._raised(error)
        try:
            return Returned(self._workflow.signature.encode_result(main.result()))
        except SerializationError as unfit:
            return self._raised(unfit)

    def _raised(self, error: BaseException) -> Raised:
        types = self._workflow.registry.codec.types
        return Raised(encode_failure(error, types), USER_ERROR)

    def _conclude(self) -> None:
        self._calls.replaying = False
        if self.outcome is not None or self.misled or self.problem is not None:
            return
        if not self._decisive and not self._calls.is_listening():
            self.problem = Deadlock(self.waiting_for())


def _confirms(event: Event, ahead: Event) -> bool:
    """Is this entry of the log what the body was advanced on?"""
    return (event.type, event.id) == (ahead.type, ahead.id) and ahead.mark in (b"", event.mark)
