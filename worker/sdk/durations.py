"""Lengths of time and moments as users write them: ``90``, ``"1h30m"``, a ``datetime``.

Everything here is pure: no clock is read. A relative value stays relative until the script that
records it adds it to the server's time.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import TypeAlias

from .errors import DurationError

Duration: TypeAlias = float | int | str | timedelta
"""Seconds, text such as ``"250ms"`` or ``"1h30m"``, or a ``timedelta``."""

When: TypeAlias = Duration | datetime
"""A duration from now, or a moment with a time zone."""

_SECONDS = {
    unit: seconds
    for seconds, units in {
        0.001: ("ms", "msec", "msecs", "millisecond", "milliseconds"),
        1.0: ("s", "sec", "secs", "second", "seconds"),
        60.0: ("m", "min", "mins", "minute", "minutes"),
        3_600.0: ("h", "hr", "hrs", "hour", "hours"),
        86_400.0: ("d", "day", "days"),
        604_800.0: ("w", "week", "weeks"),
    }.items()
    for unit in units
}

_CALENDAR_UNITS = {"mo", "mon", "mth", "month", "months", "y", "yr", "yrs", "year", "years"}

_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]+)\s*")

# A timedelta holds no more, and no due time beyond it could be shown as a date.
_LONGEST = timedelta.max.total_seconds()


def parse_duration(value: Duration) -> float:
    """Return ``value`` in seconds: finite, not negative, fractions kept.

    Text is matched as a whole and without regard to case: one or more numbers, each with a unit
    (``ms s m h d w`` or spelled out): ``"250ms"``, ``"1.5h"``, ``"1h30m"``, ``"30 seconds"``.

    Raises:
        DurationError: the text is not a duration, a unit has no fixed length (months, years), or
            the number is negative, infinite or not a number.
    """
    if isinstance(value, str):
        return _checked(_parse_text(value), value)
    if isinstance(value, timedelta):
        return _checked(value.total_seconds(), value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DurationError(
            f"a duration is a number of seconds, text such as '1h30m' or a timedelta, "
            f"not {type(value).__name__}"
        )
    try:
        return _checked(float(value), value)
    except OverflowError:
        raise DurationError("a duration this long is not supported") from None


def parse_when(value: When) -> float | datetime:
    """Return a relative ``value`` in seconds, or an absolute one as an aware ``datetime``.

    Raises:
        DurationError: as for `parse_duration`, or the ``datetime`` has no time zone.
    """
    if not isinstance(value, datetime):
        return parse_duration(value)
    if value.utcoffset() is None:
        raise DurationError(
            f"{value.isoformat()} has no time zone, so it is another moment on every machine; "
            f"write datetime(..., tzinfo=timezone.utc) or value.astimezone()"
        )
    return value


def _parse_text(text: str) -> float:
    folded = text.strip().lower()
    seconds, position = 0.0, 0
    while match := _PART.match(folded, position):
        number, unit = match.groups()
        if unit in _CALENDAR_UNITS:
            raise DurationError(
                f"{text!r}: {unit!r} has no fixed length (28 to 31 days, 365 or 366 days); "
                f"write days or weeks, or sleep until a datetime"
            )
        if unit not in _SECONDS:
            raise DurationError(f"{text!r}: unknown unit {unit!r}; units are ms, s, m, h, d, w")
        seconds += float(number) * _SECONDS[unit]
        position = match.end()
    if not folded or position != len(folded):
        raise DurationError(_why_not_a_duration(text, folded))
    return seconds


def _why_not_a_duration(text: str, folded: str) -> str:
    if folded.startswith("-"):
        return f"{text!r}: a duration cannot be negative"
    if re.fullmatch(r"[0-9.]+", folded):
        return f"{text!r} has no unit; write for example '{folded}s'"
    return f"{text!r} is not a duration; write for example '250ms', '30s' or '1h30m'"


def _checked(seconds: float, given: object) -> float:
    if math.isnan(seconds) or math.isinf(seconds):
        raise DurationError(f"{given!r}: a duration must be a finite number")
    if seconds < 0:
        raise DurationError(f"{given!r}: a duration cannot be negative")
    if seconds > _LONGEST:
        raise DurationError(f"{given!r}: a duration this long is not supported")
    return seconds + 0.0
