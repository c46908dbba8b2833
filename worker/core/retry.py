"""Whether a step that raised runs again, and when. Pure: what was raised is described, not held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..sdk.durations import parse_duration
from ..sdk.errors import FatalError, RemoteError, RetryableError

DEFAULT_MAX_RETRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed attempt of a step is followed by another.

    The delay before attempt n + 1 is ``initial * backoff ** (n - 1)``, at most ``max_delay``; then
    up to ``jitter`` of it (0 to 1) is taken off at random.

    Attributes:
        max_attempts: attempts in all, from 1; crashes of a worker are counted apart.
        initial: delay before the second attempt, as ``sleep()`` takes it.
        backoff: factor from one delay to the next, from 1.
        max_delay: no delay is longer.
        jitter: share of the delay that is left to chance.
        retry_on: error classes worth another attempt; a string names a class by its name.
        never_retry: error classes that fail the step at once; wins over ``retry_on``.

    Raises:
        ValueError: a number is outside its range.
        DurationError: a delay is not a duration.
    """

    max_attempts: int = DEFAULT_MAX_RETRIES + 1
    initial: float | int | str | timedelta = 1.0
    backoff: float = 1.0
    max_delay: float | int | str | timedelta = 3600.0
    jitter: float = 0.0
    retry_on: Sequence[type[BaseException] | str] = (Exception,)
    never_retry: Sequence[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", parse_duration(self.initial))
        object.__setattr__(self, "max_delay", parse_duration(self.max_delay))
        for name in ("retry_on", "never_retry"):
            given = getattr(self, name)
            listed = (given,) if isinstance(given, type | str) else tuple(given)
            object.__setattr__(self, name, listed)
        if self.max_attempts < 1:
            raise ValueError(
                f"max_attempts is {self.max_attempts}; it is 1 or more: the first attempt counts"
            )
        if self.backoff < 1:
            raise ValueError(f"backoff is {self.backoff}; it is 1 or more")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is {self.jitter}; it is between 0 and 1")

    def delay(self, attempts: int, chance: float = 0.0) -> float:
        """Seconds before the next attempt after `attempts` failed ones; `chance` is in 0..1."""
        initial, longest = parse_duration(self.initial), parse_duration(self.max_delay)
        try:
            wait = min(initial * self.backoff ** (attempts - 1), longest)
        except OverflowError:
            wait = longest
        return wait * (1 - self.jitter * chance)

    def to_record(self) -> list[Any]:
        """Plain values, for a call that overrides its step's policy."""
        return [
            self.max_attempts,
            self.initial,
            self.backoff,
            self.max_delay,
            self.jitter,
            [_name(each) for each in self.retry_on],
            [_name(each) for each in self.never_retry],
        ]

    @classmethod
    def from_record(cls, record: Sequence[Any]) -> RetryPolicy:
        """The inverse of `to_record`; classes come back as their names."""
        attempts, initial, backoff, longest, jitter, retry_on, never_retry = record
        return cls(
            max_attempts=attempts,
            initial=initial,
            backoff=backoff,
            max_delay=longest,
            jitter=jitter,
            retry_on=retry_on,
            never_retry=never_retry,
        )


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What the decision needs to know of an error."""

    names: frozenset[str]  # qualified and bare names of its class and the bases of it
    fatal: bool = False
    retry_after: float | datetime | None = None  # seconds, or a moment


def kind_of(error: BaseException) -> ErrorKind:
    """Describe an error that was raised here."""
    names: set[str] = set()
    for cls in type(error).__mro__:
        names.update((cls.__name__, f"{cls.__module__}.{cls.__qualname__}"))
    if isinstance(error, RemoteError):
        names.add(error.type_name)
    after = error.retry_after if isinstance(error, RetryableError) else None
    return ErrorKind(frozenset(names), isinstance(error, FatalError), after)


@dataclass(frozen=True, slots=True)
class Retry:
    """Run it again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """The step has failed for good."""

    exhausted: bool  # True: the last attempt was used; False: this error is not retried


def decide(
    policy: RetryPolicy,
    error: ErrorKind,
    attempts: int,
    *,
    now: datetime,
    chance: float = 0.0,
) -> Retry | Fail:
    """What follows a failed attempt.

    `attempts` counts the failed ones, this one included. `now` (aware) turns a moment the error
    names into a delay; `chance` in 0..1 is drawn by the caller.
    """
    if error.fatal or _is_any(error, policy.never_retry) or not _is_any(error, policy.retry_on):
        return Fail(exhausted=False)
    if attempts >= policy.max_attempts:
        return Fail(exhausted=True)
    after = error.retry_after
    if after is None:
        return Retry(policy.delay(attempts, chance))
    if isinstance(after, datetime):
        return Retry(max(0.0, (after - now).total_seconds()))
    return Retry(after)


def _is_any(error: ErrorKind, classes: Sequence[type[BaseException] | str]) -> bool:
    return any(_name(each) in error.names for each in classes)


def _name(each: type[BaseException] | str) -> str:
    return each if isinstance(each, str) else f"{each.__module__}.{each.__qualname__}"
