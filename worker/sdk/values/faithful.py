"""Whether what is read back is what was recorded.

Two grades. The first is always on where an annotation reads a value back: no class may be cut to
its base (a ``Dog`` to ``Animal``, True to 1) or exchanged for another of a union. A conversion the
annotation asks for (a list for a tuple, ``"2024-01-01"`` for a date) is allowed. The second is
strict mode: class and content must be the same, an int for a float alone excepted.
"""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

import pydantic

from .registry import is_namedtuple
from .scalars import CONCRETE_PATH
from .tagging import Unfit, key_step

_SCALARS = frozenset(
    {NoneType, bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID} | {CONCRETE_PATH}
)
_KNOWN = _SCALARS | {list, tuple, dict, set, frozenset}


def check_same(given: Any, read: Any, *, strict: bool) -> None:
    """Compare a value with what reading its record gives.

    Raises:
        Unfit: they differ, by the rules above.
    """
    kind, back = type(given), type(read)
    if kind is not back:
        _check_class(given, read, strict)
    elif kind in _SCALARS:
        if strict and not _equal(given, read):
            raise Unfit("comes back with another value")
    elif kind is dict:
        _check_dict(given, read, strict)
    elif kind is list or kind is tuple:
        _check_items(given, read, strict)
    elif kind is set or kind is frozenset:
        _check_set(given, read, strict)
    else:
        _check_instance(given, read, strict)


def _check_class(given: Any, read: Any, strict: bool) -> None:
    kind, back = type(given), type(read)
    if kind is int and back is float and given == read:
        return
    if issubclass(kind, back):
        raise Unfit(
            f"a {kind.__qualname__} would be cut to {back.__qualname__}; annotate it with its own "
            f"class, or convert it first"
        )
    if strict or (kind not in _KNOWN and not issubclass(back, kind)):
        raise Unfit(
            f"a {kind.__qualname__} would come back as {back.__qualname__}; "
            f"the annotation must name its class"
        )


def _check_dict(given: dict[Any, Any], read: dict[Any, Any], strict: bool) -> None:
    if len(given) != len(read):
        # TypedDict and extra="ignore" drop what they do not declare, two keys may become one.
        raise Unfit("some of its keys would be lost")
    if all(type(key) is str and key in read for key in given):
        # By key: reading a TypedDict puts the keys in its own order.
        _check_attributes(given, read, strict)
        return
    for (key, item), (key_back, item_back) in zip(given.items(), read.items(), strict=True):
        try:
            check_same(key, key_back, strict=strict)
            check_same(item, item_back, strict=strict)
        except Unfit as unfit:
            unfit.under(key_step(key))
            raise


def _check_items(given: Any, read: Any, strict: bool) -> None:
    if len(given) != len(read):
        raise Unfit(f"{len(given)} items would come back as {len(read)}")
    for index, (item, item_back) in enumerate(zip(given, read, strict=True)):
        try:
            check_same(item, item_back, strict=strict)
        except Unfit as unfit:
            unfit.under(f"[{index}]")
            raise


def _check_set(given: Any, read: Any, strict: bool) -> None:
    # Members have no position to pair them by.
    classes, classes_back = set(map(type, given)), set(map(type, read))
    if len(given) != len(read) or (classes != classes_back and (strict or classes - _KNOWN)):
        raise Unfit("its members would come back with other classes")
    if strict and given != read and not any(item != item for item in given):
        raise Unfit("comes back with other members")


def _check_instance(given: Any, read: Any, strict: bool) -> None:
    kind = type(given)
    if isinstance(given, pydantic.BaseModel):
        _check_attributes(given.__dict__, read.__dict__, strict)
        if strict:
            _check_attributes(given.__pydantic_extra__ or {}, read.__pydantic_extra__ or {}, True)
            _check_attributes(given.__pydantic_private__ or {}, read.__pydantic_private__ or {}, True)
    elif dataclasses.is_dataclass(given):
        names = [field.name for field in dataclasses.fields(given)]
        _check_attributes(
            {name: getattr(given, name, None) for name in names},
            {name: getattr(read, name, None) for name in names},
            strict,
        )
    elif is_namedtuple(kind):
        _check_items(given, read, strict)
    elif _has_equality(kind) and not _equal(given, read):
        # Also without strict mode: a secret is written as asterisks, and would be lost.
        raise Unfit(f"a {kind.__qualname__} comes back with another value")


def _check_attributes(given: dict[str, Any], read: dict[str, Any], strict: bool) -> None:
    for name, item in given.items():
        if name not in read:
            # A cached property, or a field the class does not record.
            continue
        try:
            check_same(item, read[name], strict=strict)
        except Unfit as unfit:
            unfit.under(key_step(name))
            raise


def _equal(given: Any, read: Any) -> bool:
    if type(given) is Decimal:  # a signalling NaN cannot be compared
        return bool(given.as_tuple() == read.as_tuple())
    try:
        # Only NaN differs from itself.
        return bool(given == read) or bool(given != given and read != read)
    except Exception as error:
        raise Unfit(
            f"comparing a {type(given).__qualname__} with what is read back raised {error!r}; give its class "
            f"an == that answers True or False, or convert it first"
        ) from error


def _has_equality(kind: type[Any]) -> bool:
    return any("__eq__" in base.__dict__ for base in kind.__mro__ if base is not object)
