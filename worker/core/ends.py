"""How an execution's end becomes a fact: completed, failed, or one more attempt. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from world_redis.events import EventType

from .records import CANCELLED, CRASHED, EXHAUSTED, FATAL, Failed, StepRetrying, pack
from .retry import ErrorKind, Retry, RetryPolicy, decide


class StepEnd(NamedTuple):
    """What is recorded of an execution."""

    type: EventType  # step_completed, step_failed or step_retrying
    data: bytes
    delay: int = 0  # ms until the retry
    cause: str = "error"  # of a retry: error, crash or drain
    error: str = ""  # for the log


def completed(result: bytes) -> StepEnd:
    return StepEnd(EventType.STEP_COMPLETED, result)


def interrupted() -> StepEnd:
    """Stopped by a drain: runs again at once, and no attempt is used."""
    return StepEnd(EventType.STEP_RETRYING, pack(StepRetrying(b"", 0, False)), cause="drain")


def cancelled() -> StepEnd:
    """Stopped because the body cancelled its call."""
    return failed(CANCELLED, b"", "cancelled")


def raised(
    policy: RetryPolicy,
    kind: ErrorKind,
    failure: bytes,
    errors: int,
    *,
    now: datetime,
    chance: float,
    text: str,
) -> StepEnd:
    """After an error; `errors` were recorded before it."""
    verdict = decide(policy, kind, errors + 1, now=now, chance=chance)
    if isinstance(verdict, Retry):
        delay = round(verdict.seconds * 1000)
        data = pack(StepRetrying(failure, delay, True))
        return StepEnd(EventType.STEP_RETRYING, data, delay, error=text)
    return failed(EXHAUSTED if verdict.exhausted else FATAL, failure, text)


def failed(code: str, failure: bytes, text: str) -> StepEnd:
    return StepEnd(EventType.STEP_FAILED, pack(Failed(code, failure)), error=text)


def crashed(failure: bytes) -> StepEnd:
    return failed(CRASHED, failure, "its worker died under it too often")
