"""What every executor answers, and how a step's code is kept from ending its worker."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Value:
    """The code returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Error:
    """The code raised. `error` may be a BaseException: a step that exits is a failed step, no more."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time of one attempt was over."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """It was stopped from outside before it ended."""


Ended = Value | Error | TimedOut | Interrupted


class Execution(Protocol):
    """One running piece of code."""

    async def ended(self) -> Ended:
        """How it ended, once."""

    def interrupt(self) -> None:
        """Ask it to stop. Code in a thread cannot be stopped: it runs on and its end is told."""

    async def released(self) -> None:
        """Returns when nothing of it runs any more (a timed-out thread may outlive `ended`)."""


class Executor(Protocol):
    def start(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, *, context: Context, timeout: float | None
    ) -> Execution:
        """Run ``fn(*args, **kwargs)`` in `context`; `timeout` in seconds, None for none."""

    async def close(self) -> None: ...
