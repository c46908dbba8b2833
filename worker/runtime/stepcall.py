"""One execution of a step: decode its arguments, run its code where it belongs, say how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from world_redis.ids import idempotency_key, long_id
from world_redis.transition import Epoch, Start

from ..core.ends import StepEnd, completed, crashed, failed, interrupted, raised
from ..core.records import FATAL
from ..core.retry import RetryPolicy, kind_of
from ..executors.base import Code, Ended, Error, Execution, Executor, Interrupted, TimedOut, Value
from ..sdk.context import current_step
from ..sdk.definitions import Step
from ..sdk.errors import (
    InternalError,
    SerializationError,
    StepCrashedError,
    StepTimeoutError,
    TypeValidationError,
)
from ..sdk.step import RunningStep, StepMetadata
from ..sdk.values import describe, encode_failure
from .ports import Ports

log = logging.getLogger("worker.step")

UNCLAIMED = Epoch(0, b"")

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


@dataclass(slots=True)  # made for every execution: to freeze it would cost more than to fill it
class StepOrder:
    """What is to be executed, and under which claim. That may come later than the rest."""

    run_id: str
    id: str  # short
    step: Step[Any, Any]
    input: bytes
    options: Mapping[str, Any]
    epoch: Epoch = UNCLAIMED
    errors: int = 0  # recorded before this execution
    started_at: int = 0  # ms, server time
    first_started: int = 0  # ms
    fence_at: int = 0  # ms, server time: not ahead of it, and not behind that of what was claimed before

    def claim(self, start: Start, *, started_at: int, fence_at: int) -> None:
        self.epoch, self.errors, self.first_started = start
        self.started_at, self.fence_at = started_at, fence_at

    @property
    def policy(self) -> RetryPolicy:
        record = self.options.get("retry")
        return RetryPolicy.from_record(record) if record else self.step.retry

    @property
    def timeout(self) -> float | None:
        """Seconds for this attempt."""
        chosen = self.options.get("timeout")
        return chosen / 1000 if chosen is not None else self.step.timeout

    def read_arguments(self) -> Arguments:
        """Raises SerializationError, TypeValidationError."""
        return self.step.signature.decode_arguments(self.input)

    def metadata(self) -> StepMetadata:
        start = _moment(self.started_at)
        timeout = self.timeout
        return StepMetadata(
            name=self.step.name,
            run_id=self.run_id,
            step_id=long_id(self.id),
            attempt=self.errors + 1,
            max_attempts=self.policy.max_attempts,
            started_at=start,
            first_started_at=_moment(self.first_started),
            deadline=None if timeout is None else start + timedelta(seconds=timeout),
            idempotency_key=idempotency_key(self.run_id, self.id),
            # Server time first: a slot alone would run backwards when a log went back.
            fencing_token=(self.fence_at << 20) | (self.epoch.slot & 0xFFFFF),
        )


@dataclass(slots=True)
class StepRun:
    """An execution in flight here."""

    order: StepOrder
    running: RunningStep
    arguments: Arguments | None = None  # read already
    execution: Execution | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)  # nothing of it runs here any more
    cancelled: bool = False  # the body's call was cancelled: its end is a failure, not one more attempt
    interrupted: bool = False  # asked to stop: what has not begun does not begin
    detached: bool = False  # it ran ahead of a claim that did not come: its end counts for nothing

    def signal(self) -> None:
        """The run was asked to cancel: the step may notice."""
        self.running.cancelled = True

    def finish(self) -> None:
        """The run has ended: nobody will look at the result."""
        self.signal()
        if self.order.step.cancellable:
            self.interrupt()

    def cancel(self) -> None:
        """Stop it because the body has cancelled its call."""
        self.cancelled = True
        self.interrupt()

    def interrupt(self) -> None:
        """Stop it, if its code can be stopped."""
        self.running.cancelled = self.interrupted = True
        if self.execution is not None:
            self.execution.interrupt()


class StepRunner:
    """Executes steps in this process."""

    def __init__(
        self,
        ports: Ports,
        executors: Mapping[str, Executor],
        resources: Any = None,
        *,
        on_seconds: Callable[[str, float], None] = lambda step, seconds: None,
    ) -> None:
        self._ports = ports
        self._on_seconds = on_seconds  # told how long a step's code took
        self._executors = executors
        self.resources = resources

    def can_run(self, step: Step[Any, Any]) -> bool:
        return step.executor in self._executors

    def prepare(self, order: StepOrder) -> StepRun:
        return StepRun(order, RunningStep(order.metadata, self.resources))

    def read_ahead(self, run: StepRun) -> None:
        """Read its arguments while its claim is on its way. What cannot be read is told when it begins."""
        with contextlib.suppress(Exception):
            run.arguments = run.order.read_arguments()

    def begin(
        self, run: StepRun, on_end: Callable[[StepEnd], None], on_over: Callable[[StepRun], None]
    ) -> None:
        """Start its code. On the loop, `on_end` is told once how it ended, and then or later `on_over` that
        nothing of it runs here any more. Never raises: what goes wrong around the code, perhaps before this
        returns, is the step's failure too."""
        told = _Told(self, run, on_end, on_over)
        if run.interrupted:  # before its first line
            return told.end(interrupted())
        try:
            self._begin(run, told)
        except (SerializationError, TypeValidationError) as error:
            told.end(failed(FATAL, encode_failure(error, run.order.step.codec.types), str(error)))
        except Exception as error:
            told.end(self._broken(run, error))

    def _begin(self, run: StepRun, told: _Told) -> None:
        order, step = run.order, run.order.step
        args, kwargs = run.arguments or order.read_arguments()
        context = contextvars.Context()
        context.run(current_step.set, run.running)
        code = Code(step.fn, args, kwargs, context)
        run.execution = self._executors[step.executor].start(code, timeout=order.timeout, listener=told)

    async def execute(self, run: StepRun, on_over: Callable[[StepRun], None]) -> StepEnd:
        """`begin`, and wait for its end."""
        end: asyncio.Future[StepEnd] = asyncio.get_running_loop().create_future()

        def on_end(given: StepEnd) -> None:
            if not end.done():  # whoever waited was cancelled
                end.set_result(given)

        self.begin(run, on_end, on_over)
        return await end

    def now(self) -> float:
        return self._ports.now()

    def judge(self, run: StepRun, ended: Ended, seconds: float) -> StepEnd:
        """What is recorded of an execution that ended so. Never raises."""
        try:
            self._on_seconds(run.order.step.name, seconds)
            return self._end(run.order, ended)
        except Exception as error:
            return self._broken(run, error)

    def _broken(self, run: StepRun, error: Exception) -> StepEnd:
        log.exception("step failed around its code", extra={"step": run.order.step.name})
        return failed(FATAL, encode_failure(InternalError(describe(error))), describe(error))

    def give_up(self, order: StepOrder, crashes: int) -> StepEnd:
        """The step's worker died under it too often."""
        return crashed(encode_failure(StepCrashedError(order.step.name, crashes)))

    def _end(self, order: StepOrder, ended: Ended) -> StepEnd:
        match ended:
            case Value(value):
                try:
                    return completed(order.step.signature.encode_result(value))
                except (SerializationError, TypeValidationError) as error:
                    return failed(FATAL, encode_failure(error, order.step.codec.types), describe(error))
            case Interrupted():
                return interrupted()
            case TimedOut():
                return self._raised(order, StepTimeoutError(order.step.name, order.timeout or 0.0))
            case Error(error):
                return self._raised(order, error)

    def _raised(self, order: StepOrder, error: BaseException) -> StepEnd:
        return raised(
            order.policy,
            kind_of(error),
            encode_failure(error, order.step.codec.types),
            order.errors,
            now=_moment(order.started_at),
            chance=self._ports.chance(),
            text=describe(error),
        )


class _Told:
    """Hears an executor, and tells what it means."""

    def __init__(
        self,
        runner: StepRunner,
        run: StepRun,
        on_end: Callable[[StepEnd], None],
        on_over: Callable[[StepRun], None],
    ) -> None:
        self._runner, self._run = runner, run
        self._on_end, self._on_over = on_end, on_over
        self._began = runner.now()

    def ended(self, ended: Ended) -> None:
        self._on_end(self._runner.judge(self._run, ended, self._runner.now() - self._began))

    def over(self) -> None:
        self._run.execution = None  # it holds us: without the circle all of it goes now, not when collected
        self._run.over.set()
        self._on_over(self._run)

    def end(self, end: StepEnd) -> None:
        """Its code never began."""
        self._on_end(end)
        self.over()


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
