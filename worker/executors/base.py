"""What every executor tells, and how a step's code is kept from ending its worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


@dataclass(slots=True)
class Value:
    """The code returned."""

    value: Any


@dataclass(slots=True)
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


class Code(NamedTuple):
    """``fn(*args, **kwargs)``, to be called in `context`."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    context: Context


class Listener(Protocol):
    """Who waits for a piece of code. Called on the loop, by whatever sees the end first: no task stands in
    between that would cost a turn of the loop for every step. Neither method may raise."""

    def ended(self, ended: Ended) -> None:
        """How it ended, once."""

    def over(self) -> None:
        """Nothing of it runs any more: at its end, or later (code that ran out of time may go on)."""


class Execution(Protocol):
    """One running piece of code."""

    def interrupt(self) -> None:
        """Ask it to stop. Code in a thread cannot be stopped: it runs on and its end is told."""


class Executor(Protocol):
    def start(self, code: Code, *, timeout: float | None, listener: Listener) -> Execution:
        """Run `code`; `timeout` in seconds, None for none. The listener hears nothing before this has
        returned."""

    async def close(self) -> None: ...
