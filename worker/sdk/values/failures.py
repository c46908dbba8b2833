"""Exceptions as recorded data.

A failure is written as ``{kind, type, module, message, ...}`` and read back as the exception
itself where its class is a builtin, one of this package or a registered one, and as `RemoteError`
otherwise. Classes are looked up in fixed tables; no name read from the store is ever imported.
What cannot be recorded is left out or becomes text: recording a failure never fails itself.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable
from typing import Any

import orjson

from .. import errors
from ..errors import FatalError, RemoteError, RemoteFatalError, error_text, message_of
from .registry import TypeRegistry, default_types
from .tagging import Tagger, Unfit, own_attributes, rebuild_exception, untag

TRACEBACK_BYTES = 16 << 10
"""At most this much traceback text is kept: its end, where the error is."""

_MESSAGE_BYTES = 16 << 10
_FIELD_BYTES = 16 << 10
_FAILURE_BYTES = 256 << 10
_MAX_LINKS = 16
_MAX_MEMBERS = 100

# An attribute of this name carries the text of where an exception was raised first.
_ORIGIN = "__remote_traceback__"

# Python replaces these two when they leave a coroutine, and a future refuses the first.
_NOT_RAISABLE = (StopIteration, StopAsyncIteration)

_BUILTINS: dict[str, type[Exception]] = {
    name: item
    for name, item in vars(builtins).items()
    if isinstance(item, type) and issubclass(item, Exception) and item.__name__ == name
    if item not in _NOT_RAISABLE
}

_OURS: dict[str, type[Exception]] = {
    name: item
    for name, item in vars(errors).items()
    if isinstance(item, type) and issubclass(item, Exception) and item.__module__ == errors.__name__
}

# Attributes builtins keep outside of __dict__ and args.
_SLOTS = ("filename", "filename2", "name", "path")


# --- writing ------------------------------------------------------------------------------------


def encode_failure(error: BaseException, types: TypeRegistry | None = None) -> bytes:
    """Return ``error`` as recorded bytes (UTF-8 JSON). Never raises.

    Kept: class name, message, arguments and attributes that can be recorded, notes, the end of the
    traceback text, the cause, the context unless suppressed, and the members of a group.
    """
    registry = default_types if types is None else types
    for brief in (False, True):
        try:
            data = orjson.dumps(_Writer(registry, brief=brief).failure(error))
        except Exception:
            continue
        if len(data) <= _FAILURE_BYTES:
            return data
    return orjson.dumps(_bare(error))


class _Writer:
    """Writes one exception with all it is linked to; ``brief`` without traceback and context."""

    def __init__(self, types: TypeRegistry, *, brief: bool) -> None:
        self._types = types
        self._brief = brief
        self._ancestors: set[int] = set()

    def failure(self, error: BaseException) -> dict[str, Any]:
        self._ancestors.add(id(error))
        tree = _bare(error)
        tree["kind"], class_id = self._kind_of(error)
        if class_id is not None:
            tree["class"] = class_id
        self._add_content(tree, error)
        if notes := getattr(error, "__notes__", None):
            tree["notes"] = [_clean(note, _FIELD_BYTES) for note in notes]
        if not self._brief and (text := _traceback_text(error)):
            tree["traceback"] = text
        self._add_links(tree, error)
        self._add_members(tree, error)
        self._ancestors.discard(id(error))
        return tree

    def _kind_of(self, error: BaseException) -> tuple[str, str | None]:
        cls = type(error)
        entry = self._types.of_class(cls)
        if entry is not None:
            return "registered", entry.class_id
        if isinstance(error, BaseExceptionGroup):
            return "group", None
        if _BUILTINS.get(cls.__name__) is cls:
            return "builtin", None
        if _OURS.get(cls.__name__) is cls:
            return "own", None
        return ("fatal" if isinstance(error, FatalError) else "other"), None

    def _add_content(self, tree: dict[str, Any], error: BaseException) -> None:
        entry = self._types.of_class(type(error))
        if entry is not None and entry.serialize is not None:
            # May raise: then the class cannot be had back, and its text must do.
            try:
                tree["content"] = self._simple(entry.serialize(error))
            except Exception:
                tree["kind"] = "fatal" if isinstance(error, FatalError) else "other"
            return
        if tree["kind"] in ("group", "other", "fatal"):
            return
        try:
            tree["args"] = [self._simple(item) for item in error.args]
        except Exception:
            tree["args"] = [tree["message"]]
        attributes = own_attributes(error)
        attributes.update(
            (name, item)
            for name in _SLOTS
            if tree["kind"] == "builtin" and (item := getattr(error, name, None)) is not None
        )
        kept = {}
        for name, item in attributes.items():
            try:
                kept[name] = self._simple(item)
            except Exception:
                continue
        if kept:
            tree["attributes"] = kept

    def _simple(self, value: Any) -> Any:
        tree = Tagger(self._types, typed=False).tag(value)
        if len(orjson.dumps(tree)) > _FIELD_BYTES:
            raise Unfit("too large to be kept with a failure")
        return tree

    def _add_links(self, tree: dict[str, Any], error: BaseException) -> None:
        cause, context = error.__cause__, error.__context__
        if cause is not None and self._follow(cause):
            tree["cause"] = self.failure(cause)
        elif context is not None and cause is None and not error.__suppress_context__:
            if not self._brief and self._follow(context):
                tree["context"] = self.failure(context)
        elif error.__suppress_context__:
            tree["suppress_context"] = True

    def _add_members(self, tree: dict[str, Any], error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            members = error.exceptions
            tree["members"] = [self.failure(member) for member in members[:_MAX_MEMBERS]]
            if len(members) > _MAX_MEMBERS:
                note = f"{len(members) - _MAX_MEMBERS} more members were not recorded"
                tree.setdefault("notes", []).append(note)

    def _follow(self, linked: BaseException) -> bool:
        return id(linked) not in self._ancestors and len(self._ancestors) < _MAX_LINKS


def _bare(error: BaseException) -> dict[str, Any]:
    """What can be said of any exception: strings alone."""
    cls = type(error)
    return {
        "kind": "fatal" if isinstance(error, FatalError) else "other",
        "type": _clean(cls.__qualname__, 1024),
        "module": _clean(cls.__module__, 1024),
        "message": _clean(message_of(error), _MESSAGE_BYTES),
    }


def describe(error: BaseException) -> str:
    """Class and text of an error in one line, for a log. Never raises."""
    return _clean(error_text(error), 2000)


def _clean(text: object, limit: int) -> str:
    """Text that is valid UTF-8 and not longer than ``limit`` bytes."""
    try:
        data = str(text).encode("utf-8", "backslashreplace")
    except Exception:
        return "<unprintable>"
    if len(data) > limit:
        data = data[: limit - 3] + b"..."
    return data.decode("utf-8", "ignore")


def _traceback_text(error: BaseException) -> str:
    try:
        text = getattr(error, _ORIGIN, "") + "".join(traceback.format_tb(error.__traceback__))
        data = text.encode("utf-8", "backslashreplace")
    except Exception:
        return ""
    if len(data) > TRACEBACK_BYTES:
        data = b"  ...\n" + data[-(TRACEBACK_BYTES - 6) :]
    return data.decode("utf-8", "ignore")


# --- reading ------------------------------------------------------------------------------------


def decode_failure(data: bytes, types: TypeRegistry | None = None) -> Exception:
    """Return the recorded failure as an exception to raise. Never raises itself.

    Control flow (``SystemExit``, ``KeyboardInterrupt``, ``CancelledError``, ...) comes back as
    `RemoteError`, so that it is a failure and does not end the program that reads it.
    """
    registry = default_types if types is None else types
    try:
        return _read(orjson.loads(data), registry)
    except Exception as error:
        return RemoteError("UnreadableFailure", f"the recorded failure cannot be read: {error!r}")


def remote_traceback(error: BaseException) -> str:
    """Text of where a failure was raised, for one that was read back; else empty."""
    text = getattr(error, _ORIGIN, "")
    return text if isinstance(text, str) else ""


def _read(tree: dict[str, Any], types: TypeRegistry) -> Exception:
    error = _revive(tree, types)
    for note in tree.get("notes", ()):
        error.add_note(note)
    if text := tree.get("traceback"):
        error.__dict__[_ORIGIN] = text
    if cause := tree.get("cause"):
        error.__cause__ = _read(cause, types)
    if context := tree.get("context"):
        error.__context__ = _read(context, types)
    if tree.get("suppress_context"):
        error.__suppress_context__ = True
    return error


def _revive(tree: dict[str, Any], types: TypeRegistry) -> Exception:
    reader = _READERS.get(tree["kind"])
    if reader is not None:
        try:
            error = reader(tree, types)
        except Exception:
            error = None
        if isinstance(error, Exception) and not isinstance(error, _NOT_RAISABLE):
            return error
    cls = RemoteFatalError if tree["kind"] == "fatal" else RemoteError
    return cls(tree["type"], tree["message"], module=tree.get("module", ""))


def _revive_group(tree: dict[str, Any], types: TypeRegistry) -> Exception:
    return ExceptionGroup(tree["message"], [_read(member, types) for member in tree["members"]])


def _revive_builtin(tree: dict[str, Any], types: TypeRegistry) -> Exception:
    error = _BUILTINS[tree["type"]](*untag(tree["args"], types))
    for name, item in untag(tree.get("attributes", {}), types).items():
        if name in _SLOTS:
            setattr(error, name, item)
        elif not name.startswith("__"):
            error.__dict__[name] = item
    return error


def _revive_own(tree: dict[str, Any], types: TypeRegistry) -> BaseException:
    return _rebuild(_OURS[tree["type"]], tree, types)


def _revive_registered(tree: dict[str, Any], types: TypeRegistry) -> Any:
    entry = types.of_id(tree["class"])
    if entry is None:
        return None
    if entry.deserialize is not None:
        return entry.deserialize(untag(tree["content"], types))
    return _rebuild(entry.cls, tree, types)


def _rebuild(cls: type[Any], tree: dict[str, Any], types: TypeRegistry) -> BaseException:
    attributes = untag(tree.get("attributes", {}), types)
    return rebuild_exception(cls, untag(tree["args"], types), attributes)


_READERS: dict[str, Callable[[dict[str, Any], TypeRegistry], Any]] = {
    "group": _revive_group,
    "builtin": _revive_builtin,
    "own": _revive_own,
    "registered": _revive_registered,
}
