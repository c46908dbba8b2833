"""Three families of trouble.

1. Errors users handle: `WorkflowError` and what derives from it.
2. Signals user code must not swallow: they derive from ``BaseException``.
3. `InternalError`: a bug of this package, and it says so.

Attributes of an error are plain values, so that an error recorded in one process comes back in
another with the same attributes. Nothing here is ever pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

# --- errors users handle ------------------------------------------------------------------------


class WorkflowError(Exception):
    """Base of every error this package raises for users to handle."""


class FatalError(WorkflowError):
    """Raise it in a step to fail without a retry; a body meets it when a step failed for good.

    An exhausted step's last error is its ``__cause__``.
    """


class RetryableError(WorkflowError):
    """Raise it in a step to choose when the next attempt runs; it adds no attempt.

    ``retry_after`` takes what ``sleep()`` takes: seconds, ``"10s"``, a ``timedelta`` or an aware
    ``datetime``; None leaves the delay to the step's retry policy.

    Attributes:
        retry_after: seconds from now, an aware ``datetime``, or None.

    Raises:
        DurationError: ``retry_after`` is none of these.
    """

    retry_after: float | datetime | None

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: float | int | str | timedelta | datetime | None = None,
    ) -> None:
        # durations raises DurationError, so that module imports this one.
        from .durations import parse_when

        super().__init__(message)
        self.retry_after = None if retry_after is None else parse_when(retry_after)


class RemoteError(WorkflowError):
    """Stands for an error raised elsewhere whose class is not registered here.

    Attributes:
        type_name: qualified name of the class that was raised.
        message: its text.
        module: where that class lives; shown only, never imported.
    """

    def __init__(self, type_name: str, message: str, *, module: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message
        self.module = module

    @property
    def name(self) -> str:
        """The same as ``type_name``."""
        return self.type_name

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


class RemoteFatalError(RemoteError, FatalError):
    """A `RemoteError` for an unregistered subclass of `FatalError`: ``except FatalError`` fits."""


class SerializationError(FatalError):
    """A value cannot be recorded, or a recorded one cannot be read; the text names the path.

    Attributes:
        path: where in the value, such as ``charge() argument 'order'.items[3].note``.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class TypeValidationError(SerializationError, TypeError):
    """A value, or a set of arguments, does not fit the annotations of the function it is for."""


class DurationError(WorkflowError, ValueError):
    """A length of time that cannot be read, is negative, or has no fixed length."""


class StepNotRegisteredError(FatalError):
    """A step was called that no registry of this program knows."""

    def __init__(self, step_name: str) -> None:
        super().__init__(
            f"step {step_name!r} is not registered; import the module that defines it where the "
            f"registry is created"
        )
        self.step_name = step_name


class StepTimeoutError(WorkflowError, TimeoutError):
    """An attempt of a step ran longer than its ``timeout=`` (seconds)."""

    def __init__(self, step_name: str, timeout: float) -> None:
        super().__init__(f"step {step_name!r} ran longer than its timeout of {timeout:g} s")
        self.step_name = step_name
        self.timeout = timeout


class StepCrashedError(FatalError):
    """A step took its worker process down again and again, and was given up after ``crashes``."""

    def __init__(self, step_name: str, crashes: int) -> None:
        super().__init__(f"step {step_name!r} was started {crashes} times and its worker died every time")
        self.step_name = step_name
        self.crashes = crashes


class RunNotFoundError(WorkflowError, LookupError):
    """No run has this id here: never started, removed after its retention, or another namespace."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} was not found in this namespace")
        self.run_id = run_id


class RunExistsError(WorkflowError):
    """An idempotency key of ``start`` is taken: by a run, or by a run of another workflow."""

    def __init__(self, key: str, run_id: str, workflow: str) -> None:
        super().__init__(f"idempotency key {key!r} belongs to run {run_id!r} of workflow {workflow!r}")
        self.key = key
        self.run_id = run_id
        self.workflow = workflow


class RunExpiredError(WorkflowError):
    """The run is already finished and takes no more payloads, requests or steps."""

    def __init__(self, run_id: str, status: str = "finished") -> None:
        super().__init__(f"run {run_id!r} is already {status}")
        self.run_id = run_id
        self.status = status


class WorkflowRunFailedError(WorkflowError):
    """``return_value()`` of a failed run; ``__cause__`` is what the workflow raised.

    Attributes:
        run_id: the run.
        error_code: the kind of failure in plain text, such as ``MAX_EVENTS_EXCEEDED``, or None.
    """

    def __init__(
        self, run_id: str, error: BaseException | None = None, *, error_code: str | None = None
    ) -> None:
        code = f" [{error_code}]" if error_code else ""
        what = "unknown error" if error is None else error_text(error)
        super().__init__(f"run {run_id!r} failed{code}: {what}")
        self.run_id = run_id
        self.error_code = error_code
        self.__cause__ = error

    @property
    def error(self) -> BaseException | None:
        """What the workflow raised; the same as ``__cause__``."""
        return self.__cause__


class RunCancelledError(WorkflowError):
    """``return_value()`` of a run that was cancelled or terminated."""

    def __init__(self, run_id: str, reason: str | None = None) -> None:
        super().__init__(f"run {run_id!r} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class RunTimeoutError(WorkflowError, TimeoutError):
    """A run did not end within the time (seconds) it, or the caller waiting for it, was given."""

    def __init__(self, run_id: str, timeout: float) -> None:
        super().__init__(f"run {run_id!r} did not end within {timeout:g} s")
        self.run_id = run_id
        self.timeout = timeout


class HookNotFoundError(WorkflowError, LookupError):
    """Nobody waits for this hook token: never created, already disposed, or its run ended."""

    def __init__(self, token: str) -> None:
        super().__init__(f"no open hook has the token {token!r}")
        self.token = token


class HookConflictError(WorkflowError):
    """A hook was awaited whose token belongs to another live run."""

    def __init__(self, token: str, conflicting_run_id: str | None = None) -> None:
        owner = f" (run {conflicting_run_id!r})" if conflicting_run_id else ""
        super().__init__(f"hook token {token!r} is already in use by another run{owner}")
        self.token = token
        self.conflicting_run_id = conflicting_run_id


class HookDisposedError(WorkflowError):
    """A hook was awaited after it was disposed; no payload can arrive any more."""

    def __init__(self, token: str) -> None:
        super().__init__(f"hook {token!r} has been disposed")
        self.token = token


class ReplayDivergenceError(WorkflowError):
    """Replay met a recorded event that this code does not ask for; met in the replay check.

    A body never sees it: a diverging run is given back and parked.

    Attributes:
        run_id: the run.
        slot: position in the log of the event that did not fit.
        recorded: what the log has there.
        called: what the code asked for instead.
        waiting_for: what the body was waiting for, one line each.
    """

    def __init__(
        self,
        run_id: str,
        *,
        slot: int,
        recorded: str,
        called: str,
        waiting_for: Sequence[str] = (),
    ) -> None:
        waits = f"; the body waits for {', '.join(waiting_for)}" if waiting_for else ""
        super().__init__(
            f"run {run_id!r} diverges at slot {slot}: recorded is {recorded}, called was {called}{waits}"
        )
        self.run_id = run_id
        self.slot = slot
        self.recorded = recorded
        self.called = called
        self.waiting_for = tuple(waiting_for)


# --- signals user code must not swallow ---------------------------------------------------------


class BodyDropped(BaseException):
    """Every call into the SDK raises it while a live body is being dropped from memory.

    The run itself goes on and is replayed when needed. Let it pass: nothing that is called while
    it is raised is recorded.
    """


# --- ours ---------------------------------------------------------------------------------------


class InternalError(Exception):
    """A bug of this package, not of the workflow: the text says what was seen."""

    def __init__(self, message: str) -> None:
        super().__init__(f"this is a bug in stepfleet, please report it: {message}")


# --- in words -----------------------------------------------------------------------------------


def message_of(error: BaseException) -> str:
    """What an error says, without its type: "" when it says nothing. Never raises."""
    if isinstance(error, (RemoteError, BaseExceptionGroup)):
        return error.message  # their str() says more than what they were made with
    try:
        return str(error)
    except Exception:
        return "<the text of this error could not be made>"


def error_text(error: BaseException) -> str:
    """``Type: message`` of an error, also of one that stands for another; the type alone when it says
    nothing. Many messages mean little without the type: ``KeyError('sku')`` says ``'sku'``. Never raises."""
    name = error.type_name if isinstance(error, RemoteError) else type(error).__name__
    message = message_of(error)
    return f"{name}: {message}" if message else name
