"""What an application offers: its workflows and steps, by name.

A name is ``name=`` or the function's qualified name, unique in its registry. The module is never
part of it, so a function may move, and ``python app.py`` and ``import app`` mean the same step.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, Literal, NoReturn, ParamSpec, Protocol, TypeVar, overload

from ..core.retry import DEFAULT_MAX_RETRIES, RetryPolicy
from .context import current_body, current_step
from .durations import Duration, parse_duration
from .texts import plain_text
from .values import Codec, Signature

P = ParamSpec("P")
T = TypeVar("T")

Executor = Literal["async", "thread"]
EXECUTORS: tuple[Executor, ...] = ("async", "thread")

Lifespan = Callable[["Workflows"], AbstractAsyncContextManager[Any]]


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
        self.place = _place(fn)
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
        self.place = _place(fn)
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
        """
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
            "start_at": start_at,
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


# --- the registry -------------------------------------------------------------------------------


class Workflows:
    """A registry of workflows and steps.

    Args:
        namespace: key prefix in Redis; None takes ``WORKFLOW_NAMESPACE``. Two applications with
            different namespaces never see each other's runs.
        client: what `start` and the like use for this registry instead of the default client.
        lifespan: async context manager, called with the registry and entered once per worker
            process before it takes work; steps read what it yields with `get_resources`.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        client: Any = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        self.namespace = namespace
        self.client = client
        self.lifespan = lifespan
        self.codec = Codec()
        self._workflows: dict[str, dict[int, WorkflowDefinition[Any, Any]]] = {}
        self._steps: dict[str, Step[Any, Any]] = {}

    # --- decorators -------------------------------------------------------------------------------

    @overload
    def workflow(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> WorkflowDefinition[P, T]: ...
    @overload
    def workflow(
        self,
        *,
        name: str | None = None,
        version: int = 1,
        timeout: Duration | None = None,
        queue: str | None = None,
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], WorkflowDefinition[P, T]]: ...
    def workflow(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        version: int = 1,
        timeout: Duration | None = None,
        queue: str | None = None,
    ) -> Any:
        """Register an ``async`` function as a workflow: ``@wf.workflow`` or with options.

        ``version`` (from 1) tells several functions of one name apart; a run keeps the version it
        was started with. ``timeout`` limits a whole run.

        Raises:
            TypeError: not an ``async`` function, or a method.
            ValueError: the name and version are taken; the text names both places.
        """

        def register(target: Callable[..., Any]) -> WorkflowDefinition[Any, Any]:
            target = _plain_function(target, "workflow")
            if not inspect.iscoroutinefunction(target):
                raise TypeError(f"workflow {target.__qualname__} must be an async function")
            made: WorkflowDefinition[Any, Any] = WorkflowDefinition(
                target, name or target.__qualname__, _version(version), self
            )
            made.timeout = None if timeout is None else parse_duration(timeout)
            made.queue = plain_text(queue, "queue") if queue else ""
            self._add_workflow(made)
            return made

        return register if fn is None else register(fn)

    @overload
    def step(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> Step[P, T]: ...
    @overload
    def step(self, fn: Callable[P, T], /) -> Step[P, T]: ...
    @overload
    def step(
        self,
        *,
        name: str | None = None,
        max_retries: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        executor: Executor | None = None,
        queue: str | None = None,
        cancellable: bool = False,
    ) -> _StepDecorator: ...
    def step(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        max_retries: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        executor: Executor | None = None,
        queue: str | None = None,
        cancellable: bool = False,
    ) -> Any:
        """Register a function as a step: ``@wf.step`` or with options.

        Args:
            max_retries: attempts after the first (3), one second apart; or give ``retry``.
            timeout: time of one attempt.
            executor: where the code runs: ``async`` (default of ``async def``) or ``thread``
                (default of ``def``).
            queue: the queue whose workers run it; None: the run's own.
            cancellable: when the body cancels the call it waits until the step has ended, and the
                step is told to stop. Otherwise the body goes on at once and the step's end is
                recorded and ignored.

        Raises:
            TypeError: not a plain function.
            ValueError: an option does not fit, or the name is taken; the text names both places.
        """

        def register(target: Callable[..., Any]) -> Step[Any, Any]:
            target = _plain_function(target, "step")
            made: Step[Any, Any] = Step(target, name or target.__qualname__, self.codec)
            made.retry = _policy(max_retries, retry)
            made.timeout = None if timeout is None else parse_duration(timeout)
            made.executor = _executor(executor, made)
            made.queue = plain_text(queue, "queue") if queue else ""
            made.cancellable = cancellable
            self._add_step(made)
            return made

        return register if fn is None else register(fn)

    def include(self, other: Workflows) -> None:
        """Offer everything `other` offers too, under the same names.

        Raises:
            ValueError: a name is taken by something else; the text names both places.
        """
        for versions in other._workflows.values():
            for each in versions.values():
                self._add_workflow(each)
        for step in other._steps.values():
            self._add_step(step)

    # --- look-up --------------------------------------------------------------------------------

    @property
    def workflows(self) -> Mapping[str, Mapping[int, WorkflowDefinition[Any, Any]]]:
        """Name → version → definition."""
        return MappingProxyType(self._workflows)

    @property
    def steps(self) -> Mapping[str, Step[Any, Any]]:
        """Name → step."""
        return MappingProxyType(self._steps)

    def find_workflow(self, name: str, version: int) -> WorkflowDefinition[Any, Any] | None:
        """The definition a run of this name and version is dispatched to, or None."""
        return self._workflows.get(name, {}).get(version)

    def latest(self, name: str) -> WorkflowDefinition[Any, Any]:
        """The highest version of `name`. Raises LookupError when there is none."""
        versions = self._workflows.get(name)
        if not versions:
            raise LookupError(f"workflow {name!r} is not registered here")
        return versions[max(versions)]

    def codecs(self) -> set[Codec]:
        """Of everything offered: its own, and those of the registries it includes."""
        found = {self.codec} | {step.codec for step in self._steps.values()}
        return found | {
            each.registry.codec for versions in self._workflows.values() for each in versions.values()
        }

    def resolve(self) -> None:
        """Resolve every annotation, to be called at start-up.

        Raises:
            TypeValidationError: one cannot be resolved; the text names it and the cure.
        """
        for versions in self._workflows.values():
            for each in versions.values():
                each.signature.resolve()
        for step in self._steps.values():
            step.signature.resolve()

    def _add_workflow(self, made: WorkflowDefinition[Any, Any]) -> None:
        versions = self._workflows.setdefault(made.name, {})
        taken = versions.setdefault(made.version, made)
        if taken is not made:
            raise ValueError(
                f"workflow {made.name!r} version {made.version} is defined twice: at "
                f"{taken.place} and at {made.place}; give one a name= or a version="
            )

    def _add_step(self, made: Step[Any, Any]) -> None:
        taken = self._steps.setdefault(made.name, made)
        if taken is not made:
            raise ValueError(
                f"step {made.name!r} is defined twice: at {taken.place} and at {made.place}; give one a name="
            )


class _StepDecorator(Protocol):
    """What ``@wf.step(...)`` with options is."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> Step[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Step[P, T]: ...


# --- calls --------------------------------------------------------------------------------------


def _named(call: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
    """Python's own warning of a forgotten ``await`` shows the name of the coroutine, and so do tasks."""
    coroutine: Any = call
    coroutine.__name__ = coroutine.__qualname__ = name
    return call


# --- checks of what was decorated ---------------------------------------------------------------


def _plain_function(target: Any, what: str) -> Callable[..., Any]:
    fn = target.__func__ if isinstance(target, staticmethod) else target
    if not inspect.isfunction(fn):
        raise TypeError(f"a {what} is a plain function, not {type(target).__name__}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{what} {fn.__qualname__} is a generator; return a value instead")
    owner = fn.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(fn).parameters), "")
    if owner and not owner.endswith("<locals>") and first in ("self", "cls"):
        raise TypeError(
            f"{what} {fn.__qualname__} is a method; its object could not be recorded. Use a plain "
            f"function, and pass what it needs as arguments"
        )
    return fn


def _place(fn: Callable[..., Any]) -> str:
    code = fn.__code__
    return f"{fn.__module__}.{fn.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def _version(version: int) -> int:
    if version < 1:
        raise ValueError(f"version is {version}; versions count from 1")
    return version


def _policy(max_retries: int | None, retry: RetryPolicy | None) -> RetryPolicy:
    if retry is not None:
        if max_retries is not None:
            raise ValueError("give max_retries= or retry=, not both")
        return retry
    retries = DEFAULT_MAX_RETRIES if max_retries is None else max_retries
    if retries < 0:
        raise ValueError(f"max_retries is {retries}; it is 0 or more")
    return RetryPolicy(max_attempts=retries + 1)


def _executor(chosen: Executor | None, step: Step[Any, Any]) -> Executor:
    if chosen is None:
        return step.executor
    if chosen not in EXECUTORS:
        raise ValueError(f"executor {chosen!r} is none of {', '.join(EXECUTORS)}")
    if chosen == "async" and not step.is_async:
        raise ValueError(f"step {step.name!r} is a plain def; executor='async' needs async def")
    return chosen
