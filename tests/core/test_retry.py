"""Whether a failed attempt is followed by another, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from worker.core.retry import Fail, Retry, RetryPolicy, decide, kind_of
from worker.sdk.errors import DurationError, FatalError, RemoteError, RetryableError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def after(policy: RetryPolicy, error: BaseException, attempts: int = 1, chance: float = 0) -> Any:
    return decide(policy, kind_of(error), attempts, now=NOW, chance=chance)


def test_by_default_three_retries_one_second_apart() -> None:
    policy = RetryPolicy()
    answers = [after(policy, ValueError(), attempts) for attempts in (1, 2, 3, 4)]
    assert answers == [Retry(1), Retry(1), Retry(1), Fail(exhausted=True)]


def test_delays_grow_up_to_the_longest() -> None:
    policy = RetryPolicy(max_attempts=5, initial="500ms", backoff=2, max_delay="3s")
    assert [policy.delay(n) for n in (1, 2, 3, 4, 5000)] == [0.5, 1, 2, 3, 3]


def test_jitter_takes_off_a_share() -> None:
    policy = RetryPolicy(initial=10, jitter=0.5)
    assert after(policy, ValueError(), chance=0) == Retry(10)
    assert after(policy, ValueError(), chance=1) == Retry(5)


@pytest.mark.parametrize("policy", [RetryPolicy(), RetryPolicy(retry_on=[FatalError])])
def test_a_fatal_error_is_never_retried(policy: RetryPolicy) -> None:
    assert after(policy, FatalError()) == Fail(exhausted=False)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError(), Retry(1)),
        (LookupError(), Retry(1)),
        (IndexError(), Fail(exhausted=False)),
        (ValueError(), Fail(exhausted=False)),
        (SystemExit(), Fail(exhausted=False)),
        (RemoteError("CardDeclined", "no"), Retry(1)),
    ],
)
def test_classes_decide_by_their_bases_and_by_name(error: BaseException, expected: Retry | Fail) -> None:
    policy = RetryPolicy(retry_on=(LookupError, "CardDeclined"), never_retry=(IndexError,))
    assert after(policy, error) == expected
    assert after(RetryPolicy.from_record(policy.to_record()), error) == expected


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("10s", 10),
        (0.25, 0.25),
        (timedelta(minutes=1), 60),
        (NOW + timedelta(hours=1), 3600),
        (NOW - timedelta(hours=1), 0),
    ],
)
def test_a_retryable_error_chooses_its_delay_but_no_more_attempts(given: Any, seconds: float) -> None:
    error = RetryableError(retry_after=given)
    assert after(RetryPolicy(), error) == Retry(seconds)
    assert after(RetryPolicy(), error, attempts=4) == Fail(exhausted=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_attempts": 0}, ValueError),
        ({"backoff": 0.5}, ValueError),
        ({"jitter": 2}, ValueError),
        ({"initial": "soon"}, DurationError),
    ],
)
def test_values_outside_their_range_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RetryPolicy(**options)
