"""One step, one version of a workflow: what the decorators of a registry make."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, TypeVar

from ..core.retry import RetryPolicy
from .context import current_body, current_step
from .durations import Duration, parse_duration, parse_when
from .texts import plain_text
from .values import Codec, Signature

if TYPE_CHECKING:
    from .registry import Workflows

P = ParamSpec("P")
T = TypeVar("T")

Executor = Literal["async", "thread"]
EXECUTORS: tuple[Executor, ...] = ("async", "thread")


# --- steps --------------------------------------------------------------------------------------


class Step(Generic[P, T]):
    """A function that runs once per call of a body, somewhere in the fleet, and is retried.

    In a body, ``await charge(...)`` issues the call when the coroutine first runs. ``fn`` is the
    plain function, for unit tests.
    """

    name: str
    fn: Callable[P, Any]
    signature: Signature
    is_async: bool
    executor: Executor
    retry: RetryPolicy
    timeout: float | None  # seconds per attempt
    queue: str  # "": the run's own queue
    cancellable: bool  # a cancelled awaiter waits for the step to end, and the step is told
    place: str  # where it is defined, for errors
    overrides: Mapping[str, object]  # what with_options changed, as recorded with a call

    def __init__(self, fn: Callable[P, Any], name: str, codec: Codec) -> None:
        functools.update_wrapper(self, fn)
        self.name = name
        self.fn = fn
        self.signature = Signature(fn, name=name, codec=codec)
        self.is_async = inspect.iscoroutinefunction(fn)
        self.executor = "async" if self.is_async else "thread"
        self.retry = RetryPolicy()
        self.timeout = None
        self.queue = ""
        self.cancellable = False
        self.place = place_of(fn)
        self.overrides = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """Awaited, it runs the step once for this call of the body and returns its result.

        Raises:
            FatalError: its attempts were used up (the last error is the cause), it crashed its workers,
                or its code raised FatalError. An error the retry policy does not retry comes as itself.
            TypeValidationError, SerializationError: the arguments cannot be recorded.
            RuntimeError: called outside a workflow body.
        """
        return _named(self._call(*args, **kwargs), f"step {self.name}")

    async def _call(self, *args: P.args, **kwargs: P.kwargs) -> T:
        body = current_body()
        if body is None:
            self._refuse_call()
        result: T = await body.step(self, args, kwargs)
        return result

    def with_options(
        self,
        *,
        timeout: Duration | None = None,
        retry: RetryPolicy | None = None,
        queue: str | None = None,
    ) -> Step[P, T]:
        """The same step with other options for the calls made through the returned object.

        ``timeout`` is the time of one attempt, as `sleep` takes it; ``queue`` names who runs it.
        """
        changed = copy.copy(self)
        overrides = dict(self.overrides)
        if timeout is not None:
            changed.timeout = parse_duration(timeout)
            overrides["timeout"] = max(1, round(changed.timeout * 1000))
        if retry is not None:
            changed.retry = retry
            overrides["retry"] = retry.to_record()
        if queue is not None:
            changed.queue = plain_text(queue, "queue")
        changed.overrides = overrides
        return changed

    def _refuse_call(self) -> NoReturn:
        if current_step.get() is not None:
            raise RuntimeError(
                f"step {self.name!r} was called inside a step; a step's code is plain code: call "
                f"{self.name}.fn(...), or call both steps from the workflow"
            )
        raise RuntimeError(
            f"step {self.name!r} was called outside a workflow; call {self.name}.fn(...) to run "
            f"the plain function, for example in a unit test"
        )

    @property
    def codec(self) -> Codec:
        """How its values are recorded."""
        return self.signature.codec

    def __repr__(self) -> str:
        return f"<step {self.name!r}>"


# --- workflows ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """How a run is started; see `WorkflowDefinition.with_options`."""

    idempotency_key: str | None = None
    on_duplicate: Literal["return", "raise"] = "return"
    delay: float | None = None  # seconds
    start_at: datetime | None = None
    queue: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None  # seconds
    version: int | None = None
    detach: bool = False


class WorkflowDefinition(Generic[P, T]):
    """One version of a workflow: an ``async`` function that calls steps.

    ``await other(...)`` in a body runs it as a child; outside, `start` runs it.
    """

    name: str
    version: int
    fn: Callable[P, Coroutine[Any, Any, T]]
    signature: Signature
    timeout: float | None  # seconds a run may take
    queue: str  # "": the default queue
    place: str
    registry: Workflows
    options: StartOptions

    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, T]],
        name: str,
        version: int,
        registry: Workflows,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.name = name
        self.version = version
        self.fn = fn
        self.signature = Signature(fn, name=name, codec=registry.codec)
        self.timeout = None
        self.queue = ""
        self.place = place_of(fn)
        self.registry = registry
        self.options = StartOptions()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """Awaited, it runs this workflow as a child of the body that calls it and returns its result.

        Raises:
            WorkflowRunFailedError: the child failed; what it raised is the cause.
            RunCancelledError: the child was cancelled or terminated.
            RuntimeError: called outside a workflow body.
        """
        return _named(self._call(*args, **kwargs), f"workflow {self.name}")

    async def _call(self, *args: P.args, **kwargs: P.kwargs) -> T:
        body = current_body()
        if body is None:
            raise RuntimeError(
                f"workflow {self.name!r} was called outside a workflow; start(...) it, or call "
                f"{self.name}.fn(...) in a unit test of its plain code"
            )
        _, ended = body.child(self, args, kwargs, resolved=False)
        result: T = await ended
        return result

    def with_options(
        self,
        *,
        idempotency_key: str | None = None,
        on_duplicate: Literal["return", "raise"] | None = None,
        delay: Duration | None = None,
        start_at: datetime | None = None,
        queue: str | None = None,
        attributes: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        version: int | None = None,
        detach: bool | None = None,
    ) -> WorkflowDefinition[P, T]:
        """The same workflow with other options for the runs started through the returned object.

        ``delay`` and ``timeout`` are durations as `sleep` takes them. ``detach`` lets a child
        outlive its parent's cancel and end.

        Raises:
            DurationError: a duration cannot be read, or ``start_at`` has no time zone.
            TypeError: ``start_at`` is not a ``datetime``.
            ValueError: another option has a value it does not take.
        """
        if on_duplicate not in (None, "return", "raise"):
            raise ValueError(f"on_duplicate is {on_duplicate!r}; it is 'return' or 'raise'")
        for text, what in ((queue, "queue"), (idempotency_key, "idempotency key")):
            if text is not None:
                plain_text(text, what)
        for name, value in (attributes or {}).items():
            plain_text(name, "attribute key")
            plain_text(value, f"attribute {name!r}: value")
        given = {
            "idempotency_key": idempotency_key,
            "on_duplicate": on_duplicate,
            "delay": None if delay is None else parse_duration(delay),
            "start_at": None if start_at is None else _moment(start_at),
            "queue": queue,
            "attributes": None if attributes is None else dict(attributes),
            "timeout": None if timeout is None else parse_duration(timeout),
            "version": version,
            "detach": detach,
        }
        changed = copy.copy(self)
        chosen: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        changed.options = replace(self.options, **chosen)
        return changed

    def for_new_runs(self) -> WorkflowDefinition[Any, Any]:
        """The version a new run takes: the one asked for, else the highest registered.

        Raises:
            LookupError: no such version is registered.
        """
        version = self.options.version
        if version is None:
            return self.registry.latest(self.name)
        found = self.registry.find_workflow(self.name, version)
        if found is None:
            raise LookupError(f"workflow {self.name!r} has no version {version} here")
        return found

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version}>"


def _moment(start_at: datetime) -> datetime:
    if not isinstance(start_at, datetime):
        raise TypeError(f"start_at is {start_at!r}; it is a datetime (a time from now is delay=)")
    parse_when(start_at)
    return start_at


# --- calls --------------------------------------------------------------------------------------


def _named(call: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
    """Python's own warning of a forgotten ``await`` shows the name of the coroutine, and so do tasks."""
    coroutine: Any = call
    coroutine.__name__ = coroutine.__qualname__ = name
    return call


def place_of(fn: Callable[..., Any]) -> str:
    code = fn.__code__
    return f"{fn.__module__}.{fn.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
