"""Durations and moments as users write them."""

import contextlib
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.sdk.durations import parse_duration, parse_when
from worker.sdk.errors import DurationError, WorkflowError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90.0),
        (0, 0.0),
        (0.25, 0.25),
        (-0.0, 0.0),
        (timedelta(minutes=2, milliseconds=5), 120.005),
        ("250ms", 0.25),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3_600.0),
        ("7d", 604_800.0),
        ("2w", 1_209_600.0),
        ("1H", 3_600.0),
        ("250MS", 0.25),
        (" 1.5 h ", 5_400.0),
        (".5s", 0.5),
        ("1h30m", 5_400.0),
        ("1d 2h 3m 4s 5ms", 93_784.005),
        ("30 seconds", 30.0),
        ("1 Minute", 60.0),
        ("2 hrs", 7_200.0),
        ("1 week", 604_800.0),
    ],
)
def test_a_duration_is_read_in_seconds(value: Any, seconds: float) -> None:
    assert parse_duration(value) == pytest.approx(seconds)
    assert math.copysign(1, parse_duration(value)) == 1


@pytest.mark.parametrize("text", ["1 month", "2mo", "3 months", "1y", "1 year", "1h 2 years"])
def test_months_and_years_are_refused_with_the_reason(text: str) -> None:
    with pytest.raises(DurationError, match="no fixed length"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "not a duration"),
        ("soon", "not a duration"),
        ("10", "no unit"),
        ("10 parsecs", "unknown unit"),
        ("in 10s", "not a duration"),
        ("10s later", "not a duration"),
        ("1h,30m", "not a duration"),
        ("-5s", "negative"),
        ("nan", "not a duration"),
        ("1.2.3s", "not a duration"),
        (f"{'9' * 400}s", "finite"),
        (-1, "negative"),
        (timedelta(seconds=-1), "negative"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (10**400, "this long"),
        (1e15, "this long"),
        (True, "not bool"),
        (None, "not NoneType"),
        ([1], "not list"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(DurationError, match=reason):
        parse_duration(value)


@given(st.integers(0, 10**9), st.sampled_from(["ms", "s", "m", "h", "d", "w"]))
def test_every_number_and_unit_is_read_in_either_case(number: int, unit: str) -> None:
    factor = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[unit]
    if number * factor > timedelta.max.total_seconds():
        return
    assert parse_duration(f"{number}{unit}") == pytest.approx(number * factor)
    assert parse_duration(f"{number} {unit.upper()}") == parse_duration(f"{number}{unit}")


@given(st.text(max_size=20))
def test_any_text_is_a_number_of_seconds_or_a_duration_error(text: str) -> None:
    with contextlib.suppress(DurationError):
        assert 0 <= parse_duration(text) < math.inf


def test_a_moment_keeps_its_zone_and_a_duration_stays_relative() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    assert parse_when(moment) is moment
    assert parse_when("1h") == 3_600.0
    assert parse_when(timedelta(seconds=3)) == 3.0


def test_a_moment_without_a_zone_is_refused_with_the_cure() -> None:
    with pytest.raises(DurationError, match=r"has no time zone.*timezone\.utc"):
        parse_when(datetime(2030, 1, 1))


def test_a_duration_error_is_a_value_error_and_a_workflow_error() -> None:
    assert issubclass(DurationError, ValueError)
    assert issubclass(DurationError, WorkflowError)
