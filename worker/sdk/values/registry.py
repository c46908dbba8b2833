"""Classes that may be recorded by name: who they are, how they are written and read.

A class is found by the id it was registered under and by nothing else. A name read from the store
is looked up in this table; it is never imported.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar, overload

import pydantic

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Registration:
    """One registered class.

    ``serialize`` and ``deserialize`` are None for a dataclass, pydantic model or NamedTuple
    recorded field by field, and for an exception recorded by its arguments and attributes.
    """

    cls: type[Any]
    class_id: str
    serialize: Callable[[Any], Any] | None
    deserialize: Callable[[Any], Any] | None


class TypeRegistry:
    """The classes one application records by name; ids are unique in it."""

    def __init__(self) -> None:
        self._by_id: dict[str, Registration] = {}
        self._by_class: dict[type[Any], Registration] = {}

    def register(
        self,
        cls: type[T],
        *,
        class_id: str | None = None,
        serialize: Callable[[T], Any] | None = None,
        deserialize: Callable[[Any], T] | None = None,
    ) -> None:
        """Record instances of exactly ``cls`` (not of subclasses) under ``class_id``.

        ``class_id`` defaults to the qualified name; the module is no part of it, so a class may
        move. ``serialize`` turns an instance into a value that can be recorded, ``deserialize``
        turns that back; they default to the methods ``_workflow_serialize`` and
        ``_workflow_deserialize`` (a classmethod), for an Enum to its value, for dataclasses,
        pydantic models and NamedTuples to their fields, for exceptions to arguments and
        attributes.

        Raises:
            TypeError: there is no way to write or read the class, or the id belongs to another.
        """
        entry = Registration(
            cls,
            class_id or cls.__qualname__,
            serialize or _default_serialize(cls),
            deserialize or _default_deserialize(cls),
        )
        if (entry.serialize is None) != (entry.deserialize is None):
            missing = "serialize" if entry.serialize is None else "deserialize"
            raise TypeError(f"{cls.__qualname__}: {missing}= is missing")
        if entry.serialize is None and not _has_fields(cls) and not issubclass(cls, Exception):
            raise TypeError(
                f"{cls.__qualname__} needs serialize= and deserialize=, or the methods "
                f"_workflow_serialize and _workflow_deserialize, to be recorded"
            )
        holder = self._by_id.get(entry.class_id)
        if holder is not None and not _same_place(holder.cls, cls):
            raise TypeError(
                f"{cls.__module__}.{cls.__qualname__}: the id {entry.class_id!r} belongs to "
                f"{holder.cls.__module__}.{holder.cls.__qualname__}; pass class_id="
            )
        self._by_id[entry.class_id] = entry
        self._by_class[cls] = entry

    def of_class(self, cls: type[Any]) -> Registration | None:
        """The registration of exactly ``cls``, or None."""
        return self._by_class.get(cls)

    def knows_kind_of(self, cls: type[Any]) -> bool:
        """Whether ``cls`` or a class below it is registered: an instance of it may come out of a record."""
        # A copy: a step in a thread may import a module that registers more.
        return any(issubclass(known, cls) for known in list(self._by_class))

    def of_id(self, class_id: str) -> Registration | None:
        """The registration recorded as ``class_id``, or None."""
        return self._by_id.get(class_id)


default_types = TypeRegistry()
"""Where `serializable` and `register_serializable` put a class when no registry is named."""


def register_serializable(
    cls: type[T],
    *,
    class_id: str | None = None,
    serialize: Callable[[T], Any] | None = None,
    deserialize: Callable[[Any], T] | None = None,
    types: TypeRegistry | None = None,
) -> None:
    """Let instances of ``cls`` be recorded and read without an annotation.

    See `TypeRegistry.register`; ``types`` defaults to `default_types`.
    """
    registry = default_types if types is None else types
    registry.register(cls, class_id=class_id, serialize=serialize, deserialize=deserialize)


@overload
def serializable(cls: type[T]) -> type[T]: ...
@overload
def serializable(
    cls: None = None, *, class_id: str | None = None, types: TypeRegistry | None = None
) -> Callable[[type[T]], type[T]]: ...
def serializable(
    cls: type[Any] | None = None,
    *,
    class_id: str | None = None,
    types: TypeRegistry | None = None,
) -> Any:
    """Class decorator of `register_serializable`: ``@serializable`` or with ``class_id=``.

    Enums, dataclasses, pydantic models, NamedTuples and exceptions need no methods; put it above
    ``@dataclass``.
    """

    def decorate(target: type[T]) -> type[T]:
        register_serializable(target, class_id=class_id, types=types)
        return target

    return decorate if cls is None else decorate(cls)


def is_namedtuple(cls: type[Any]) -> bool:
    """Whether ``cls`` was made by ``typing.NamedTuple`` or ``collections.namedtuple``."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _has_fields(cls: type[Any]) -> bool:
    return dataclasses.is_dataclass(cls) or issubclass(cls, pydantic.BaseModel) or is_namedtuple(cls)


def _default_serialize(cls: type[Any]) -> Callable[[Any], Any] | None:
    if hasattr(cls, "_workflow_serialize"):
        return operator.methodcaller("_workflow_serialize")
    return operator.attrgetter("value") if issubclass(cls, Enum) else None


def _default_deserialize(cls: type[Any]) -> Callable[[Any], Any] | None:
    method: Callable[[Any], Any] | None = getattr(cls, "_workflow_deserialize", None)
    if method is not None:
        return method
    return cls if issubclass(cls, Enum) else None


def _same_place(one: type[Any], other: type[Any]) -> bool:
    # A reload, or a module run as __main__ and imported again, defines the same class anew.
    same_module = one.__module__ == other.__module__ or "__main__" in (
        one.__module__,
        other.__module__,
    )
    return same_module and one.__qualname__ == other.__qualname__
