"""The recorded form of a value: JSON that says itself what JSON cannot say.

A plain value is just its JSON. Every other value is an object with one key that starts with
``$``: ``{"$tuple": [1, 2]}``, ``{"$decimal": "9.90"}``, ``{"$object": ["Color", "red"]}``. A
dictionary of the user's that looks like that, or has keys that are not plain text, is written as
``{"$dict": [[key, value], ...]}``, so nothing is ever mistaken for a tag.

`Tagger` makes this tree of str, bool, None, finite float, 64-bit int, list and dict; `untag` reads
it. Order of sets depends on the hash seed of a process, so they are written sorted.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Collection
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import orjson
import pydantic
from pydantic_core import PydanticSerializationError, to_jsonable_python

from . import scalars
from .adapters import field_values, validate_fields
from .registry import Registration, TypeRegistry, is_namedtuple

MAX_DEPTH = 200
"""Levels of JSON a value may have; tags count. The JSON library itself stops at 254."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Unfit(Exception):
    """A value, or a recorded tree, that cannot be handled; collects the way to it as it rises."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.trail = ""

    def under(self, step: str) -> None:
        """Put ``step`` in front of the way to the culprit."""
        self.trail = step + self.trail


def key_step(key: object) -> str:
    """How a dictionary key or field looks in a path."""
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    try:
        text = repr(key)
    except Exception:
        # Also an int of thousands of digits.
        text = type(key).__name__
    return f"[{text if len(text) <= 60 else text[:57] + '...'}]"


# --- writing ------------------------------------------------------------------------------------


class Tagger:
    """Turns one value into its recorded tree.

    ``typed`` says that an annotation will read the tree, so that dataclasses, models and enums
    may be written without their names. ``needs_check`` is set when one was: only reading the tree
    back can tell whether the annotation brings back the same class.
    """

    __slots__ = ("_types", "_typed", "needs_check")

    def __init__(self, types: TypeRegistry, *, typed: bool) -> None:
        self._types = types
        self._typed = typed
        self.needs_check = False

    def tag(self, value: Any, depth: int = 0) -> Any:
        """The tree of ``value``.

        Raises:
            Unfit: it, or something in it, cannot be recorded.
        """
        if depth > MAX_DEPTH:
            raise Unfit(f"nested deeper than {MAX_DEPTH} levels; does it contain itself?")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return value if scalars.is_clean(value) else {"$str": scalars.text_to_ascii(value)}
        if kind is int:
            if _INT64_MIN <= value <= _INT64_MAX:
                return value
            return {"$int": scalars.int_to_text(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind is dict:
            return self._tag_dict(value, depth)
        if kind is list:
            return self._tag_items(value, depth + 1)
        return self._tag_rest(value, kind, depth)

    def _tag_rest(self, value: Any, kind: type[Any], depth: int) -> Any:
        if kind is tuple:
            return {"$tuple": self._tag_items(value, depth + 2)}
        entry = self._types.of_class(kind)
        if entry is not None:
            return self._tag_object(value, entry, depth)
        if kind in scalars.TEXT_SCALARS:
            tag, write, _ = scalars.TEXT_SCALARS[kind]
            return {tag: write(value)}
        if kind is set or kind is frozenset:
            return {f"${kind.__name__}": self._tag_sorted(value, depth + 2)}
        if kind is scalars.CONCRETE_PATH:
            return {"$path": self.tag(str(value), depth + 1)}
        if self._typed:
            self.needs_check = True
            return self._tag_by_shape(value, kind, depth)
        raise Unfit(_cannot(kind))

    def _tag_dict(self, value: dict[Any, Any], depth: int) -> Any:
        out: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is not str or not scalars.is_clean(key):
                return self._tag_pairs(value, depth)
            try:
                out[key] = self.tag(item, depth + 1)
            except Unfit as unfit:
                unfit.under(key_step(key))
                raise
        if len(out) == 1 and next(iter(out)).startswith("$"):
            return self._tag_pairs(value, depth)
        return out

    def _tag_pairs(self, value: dict[Any, Any], depth: int) -> Any:
        pairs = []
        for key, item in value.items():
            try:
                pairs.append([self._tag_key(key, depth + 3), self.tag(item, depth + 3)])
            except Unfit as unfit:
                unfit.under(key_step(key))
                raise
        return {"$dict": pairs}

    def _tag_key(self, key: Any, depth: int) -> Any:
        tagged = self.tag(key, depth)
        if type(tagged) is dict and not next(iter(tagged), "").startswith("$"):
            raise Unfit(f"a {type(key).__qualname__} cannot be a dictionary key; keys are scalars")
        return tagged

    def _tag_items(self, value: Collection[Any], depth: int) -> list[Any]:
        out: list[Any] = []
        try:
            for item in value:
                out.append(self.tag(item, depth))
        except Unfit as unfit:
            unfit.under(f"[{len(out)}]")
            raise
        return out

    def _tag_sorted(self, value: Collection[Any], depth: int) -> list[Any]:
        try:
            items = [self.tag(item, depth) for item in value]
        except Unfit as unfit:
            unfit.under("{}")
            raise
        return sorted(items, key=orjson.dumps)

    def _tag_object(self, value: Any, entry: Registration, depth: int) -> Any:
        if entry.serialize is not None:
            try:
                payload = entry.serialize(value)
            except Exception as error:
                raise Unfit(f"{entry.class_id} could not be written: {error!r}") from error
            return {"$object": [entry.class_id, self.tag(payload, depth + 2)]}
        if isinstance(value, BaseException):
            payload = self._tag_items(value.args, depth + 3)
            attributes = self._tag_dict(own_attributes(value), depth + 3)
            return {"$object": [entry.class_id, [payload, attributes]]}
        # Fields are read back through the annotations of the class.
        self.needs_check = True
        typed, self._typed = self._typed, True
        try:
            payload = self._tag_fields(value, depth + 2)
        finally:
            self._typed = typed
        return {"$object": [entry.class_id, payload]}

    def _tag_by_shape(self, value: Any, kind: type[Any], depth: int) -> Any:
        """Write what only an annotation can read back."""
        if isinstance(value, Enum):
            return self.tag(value.value, depth)
        if isinstance(value, pydantic.BaseModel) or dataclasses.is_dataclass(kind) or is_namedtuple(kind):
            return self._tag_fields(value, depth)
        for base, plain in _PLAIN_BASES:
            if isinstance(value, base):
                return self.tag(plain(value), depth)
        try:
            return self.tag(to_jsonable_python(value), depth)
        except (PydanticSerializationError, ValueError):
            raise Unfit(_cannot(kind)) from None

    def _tag_fields(self, value: Any, depth: int) -> Any:
        if isinstance(value, pydantic.RootModel):
            return self.tag(value.root, depth)
        return self._tag_dict(field_values(value), depth)


_PLAIN_BASES: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = (
    (dict, dict),
    (list, list),
    (tuple, tuple),
    (set, set),
    (frozenset, frozenset),
    (deque, list),
    (str, str.__str__),
    (PurePath, str),
)


def own_attributes(error: BaseException) -> dict[str, Any]:
    """The attributes a class gave its exception; those of the machinery start with ``__``."""
    return {name: item for name, item in vars(error).items() if not name.startswith("__")}


def _cannot(kind: type[Any]) -> str:
    if kind is bytearray or kind is memoryview:
        return f"a {kind.__name__} cannot be recorded; pass bytes(value)"
    for base in (bool, int, float, str, bytes, tuple, list, dict, set):
        if issubclass(kind, base) and not issubclass(kind, Enum) and not is_namedtuple(kind):
            return (
                f"a {kind.__qualname__} would come back as {base.__name__}; convert it with "
                f"{base.__name__}(value), or register the class with @serializable"
            )
    return (
        f"a {kind.__qualname__} cannot be recorded; annotate it with its class if that is a "
        f"dataclass, pydantic model or Enum, or register the class with @serializable"
    )


# --- reading ------------------------------------------------------------------------------------


def untag(tree: Any, types: TypeRegistry) -> Any:
    """The value of a recorded tree; lists and dictionaries of ``tree`` are reused.

    Raises:
        Unfit: a tag or class is unknown here, or its content is not what the tag promises.
    """
    kind = type(tree)
    if kind is list:
        for index, item in enumerate(tree):
            if type(item) is dict or type(item) is list:
                try:
                    tree[index] = untag(item, types)
                except Unfit as unfit:
                    unfit.under(f"[{index}]")
                    raise
        return tree
    if kind is not dict:
        return tree
    if len(tree) == 1:
        ((key, payload),) = tree.items()
        if key[:1] == "$":
            return _revive(key, payload, types)
    for key, item in tree.items():
        if type(item) is dict or type(item) is list:
            try:
                tree[key] = untag(item, types)
            except Unfit as unfit:
                unfit.under(key_step(key))
                raise
    return tree


def _revive(tag: str, payload: Any, types: TypeRegistry) -> Any:
    reader = _READERS.get(tag)
    if reader is None and tag != "$object":
        raise Unfit(f"unknown tag {tag!r}; was it written by a newer version of this package?")
    payload = untag(payload, types)
    if reader is None:
        return _revive_object(payload, types)
    try:
        return reader(payload)
    except Exception as error:
        raise Unfit(f"malformed {tag!r}: {error}") from None


def _revive_object(payload: Any, types: TypeRegistry) -> Any:
    if type(payload) is not list or len(payload) != 2 or type(payload[0]) is not str:
        raise Unfit("malformed '$object'")
    class_id, content = payload
    entry = types.of_id(class_id)
    if entry is None:
        raise Unfit(f"class {class_id!r} is not registered here; see @serializable")
    try:
        if entry.deserialize is not None:
            return entry.deserialize(content)
        if issubclass(entry.cls, BaseException):
            return rebuild_exception(entry.cls, *content)
        return validate_fields(entry.cls, content)
    except pydantic.ValidationError as error:
        raise Unfit(f"{class_id} could not be read: {error.error_count()} invalid fields") from None
    except Exception as error:
        raise Unfit(f"{class_id} could not be read: {error!r}") from error


def rebuild_exception(cls: type[BaseException], args: Any, attributes: dict[str, Any]) -> BaseException:
    """An instance with these arguments and attributes; its ``__init__`` does not run again."""
    error = cls.__new__(cls, *args)
    error.args = tuple(args)
    for name, item in attributes.items():
        if not name.startswith("__"):
            error.__dict__[name] = item
    return error


def _to_set(items: list[Any]) -> Any:
    try:
        return set(items)
    except TypeError:
        # Models and dataclasses are still dictionaries here; their annotation makes the set.
        return items


def _to_frozenset(items: list[Any]) -> Any:
    made = _to_set(items)
    return frozenset(made) if type(made) is set else made


_READERS: dict[str, Callable[[Any], Any]] = {
    "$str": scalars.text_from_ascii,
    "$int": scalars.int_from_text,
    "$float": float,
    "$tuple": tuple,
    "$set": _to_set,
    "$frozenset": _to_frozenset,
    "$dict": dict,
    "$path": Path,
    **{tag: read for tag, _, read in scalars.TEXT_SCALARS.values()},
}
