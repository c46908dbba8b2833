"""What an application offers: its workflows and steps, by name.

A name is ``name=`` or the function's qualified name, unique in its registry. The module is never
part of it, so a function may move, and ``python app.py`` and ``import app`` mean the same step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from ..core.retry import DEFAULT_MAX_RETRIES, RetryPolicy
from .definitions import EXECUTORS, Executor, Step, WorkflowDefinition
from .durations import Duration, parse_duration
from .texts import plain_text
from .values import Codec

P = ParamSpec("P")
T = TypeVar("T")

Lifespan = Callable[["Workflows"], AbstractAsyncContextManager[Any]]


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

    def find_step(self, name: str) -> Step[Any, Any] | None:
        """The step of this name, or None."""
        return self._steps.get(name)

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
