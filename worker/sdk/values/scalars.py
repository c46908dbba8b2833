"""How single values that JSON lacks are written as text, and read back exactly."""

from __future__ import annotations

import base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

# Beyond this, decimal text needs a setting of the interpreter (its limit is 4300 digits).
_DECIMAL_BITS = 10_000

Moment = TypeVar("Moment", datetime, time)


def is_clean(text: str) -> bool:
    """Whether ``text`` is valid UTF-8 once encoded, that is, holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- numbers ------------------------------------------------------------------------------------


def int_to_text(value: int) -> str:
    """Decimal digits, or hexadecimal ones for numbers of thousands of digits."""
    return str(value) if value.bit_length() < _DECIMAL_BITS else hex(value)


def int_from_text(text: str) -> int:
    """Inverse of `int_to_text`."""
    return int(text, 0)


# --- text and bytes -----------------------------------------------------------------------------


def text_to_ascii(value: str) -> str:
    """Backslash escapes, lone surrogates included."""
    return value.encode("unicode_escape").decode("ascii")


def text_from_ascii(text: str) -> str:
    """Inverse of `text_to_ascii`."""
    return text.encode("ascii").decode("unicode_escape")


def bytes_to_text(value: bytes) -> str:
    """Base 64."""
    return base64.b64encode(value).decode("ascii")


def bytes_from_text(text: str) -> bytes:
    """Inverse of `bytes_to_text`."""
    return base64.b64decode(text, validate=True)


# --- time ---------------------------------------------------------------------------------------


def moment_to_tree(value: datetime | time) -> str | list[Any]:
    """ISO 8601 text; ``[text, zone, fold]`` where that text alone would lose one of them.

    Zones that are neither ``timezone`` nor ``ZoneInfo`` keep their offset only.
    """
    zone = value.tzinfo
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        return [value.replace(tzinfo=None, fold=0).isoformat(), zone.key, value.fold]
    if value.fold:
        return [value.replace(fold=0).isoformat(), None, value.fold]
    return value.isoformat()


def datetime_from_tree(tree: str | list[Any]) -> datetime:
    """Inverse of `moment_to_tree`."""
    if isinstance(tree, str):
        return datetime.fromisoformat(tree)
    return _in_zone(datetime.fromisoformat(tree[0]), *tree[1:])


def time_from_tree(tree: str | list[Any]) -> time:
    """Inverse of `moment_to_tree`."""
    if isinstance(tree, str):
        return time.fromisoformat(tree)
    return _in_zone(time.fromisoformat(tree[0]), *tree[1:])


def _in_zone(value: Moment, zone: str | None, fold: int) -> Moment:
    if zone is None:
        return value.replace(fold=fold)
    return value.replace(tzinfo=ZoneInfo(zone), fold=fold)


def timedelta_to_tree(value: timedelta) -> list[int]:
    """``[days, seconds, microseconds]``, as ``timedelta`` itself keeps them."""
    return [value.days, value.seconds, value.microseconds]


def timedelta_from_tree(tree: list[int]) -> timedelta:
    """Inverse of `timedelta_to_tree`."""
    return timedelta(*tree)


CONCRETE_PATH: type[Path] = type(Path())
"""The class ``Path()`` makes on this machine."""

TEXT_SCALARS: dict[type[Any], tuple[str, Any, Any]] = {
    bytes: ("$bytes", bytes_to_text, bytes_from_text),
    date: ("$date", date.isoformat, date.fromisoformat),
    datetime: ("$datetime", moment_to_tree, datetime_from_tree),
    time: ("$time", moment_to_tree, time_from_tree),
    timedelta: ("$timedelta", timedelta_to_tree, timedelta_from_tree),
    Decimal: ("$decimal", str, Decimal),
    UUID: ("$uuid", str, UUID),
}
"""Class → tag, to JSON, from JSON, for scalars that need nothing but themselves."""
