"""What the ``data`` of a log event holds.

A record is packed as one MessagePack array of its fields in order; values of users travel inside as
the bytes the codec made. A field added later goes to the end with a default: an old record then
reads with the default, and a newer one is read by old code without its tail.

Two events hold no record but a value's bytes alone: ``step_completed`` and ``run_completed`` (the
result), so that a child's end can be copied into its parent as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import msgpack

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StepCreated:
    """``step_created``, also of a child run."""

    name: str  # of the step, or of the child's workflow
    input: bytes
    queue: str = ""  # "": the run's own queue
    options: Mapping[str, Any] = field(default_factory=dict)
    child_run_id: str = ""  # not "": this is a child
    version: int = 0  # of the child's workflow

    @property
    def label(self) -> str:
        return f"child {self.name}" if self.child_run_id else f"step {self.name}"


@dataclass(frozen=True, slots=True)
class StepRetrying:
    """``step_retrying``."""

    failure: bytes  # encoded
    delay: int  # ms until the next attempt
    counted: bool  # False: an interruption, not an attempt


@dataclass(frozen=True, slots=True)
class Failed:
    """``step_failed``, ``run_failed`` and ``run_cancelled``: one layout, so that a child's end can
    be copied into its parent as it is."""

    code: str  # see `FATAL` and its neighbours; of a run also MAX_EVENTS_EXCEEDED and the like
    failure: bytes  # encoded; b"" when there is nothing but the code


FATAL = "FATAL"  # the step raised an error that is not retried
EXHAUSTED = "EXHAUSTED"  # the last attempt failed
CRASHED = "CRASHED"  # its worker died under it again and again
CANCELLED = "CANCELLED"  # a cancellable step, or a child, ended by a cancel request
USER_ERROR = "USER_ERROR"  # the body raised
BODY_DEADLOCK = "BODY_DEADLOCK"  # the body is quiet with nothing open
BODY_STUCK = "BODY_STUCK"  # the body did not come to rest
RUN_TIMEOUT = "RUN_TIMEOUT"  # the run took longer than its timeout
MAX_EVENTS_EXCEEDED = "MAX_EVENTS_EXCEEDED"  # the log is full


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """``run_cancel_requested``."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class HookCreated:
    """``hook_created``."""

    token: str
    metadata: bytes = b""
    name: str = ""  # of the payload class


@dataclass(frozen=True, slots=True)
class HookConflict:
    """``hook_conflict``."""

    token: str
    run_id: str = ""  # that holds the token


@dataclass(frozen=True, slots=True)
class HookReceived:
    """``hook_received``."""

    payload: bytes
    resume_id: str = ""


@dataclass(frozen=True, slots=True)
class AttributesSet:
    """``attr_set``."""

    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class PatchRecorded:
    """``patch_recorded``."""

    change_id: str


def pack(record: object) -> bytes:
    """The bytes of a record."""
    packed: bytes = msgpack.packb([getattr(record, name) for name in _names(type(record))])
    return packed


def unpack(kind: type[R], data: bytes) -> R:
    """Read a record of `kind`. Raises ValueError for anything `pack` did not write."""
    try:
        return kind(*msgpack.unpackb(data)[: len(_names(kind))])
    except Exception as error:
        raise ValueError(f"not a {kind.__name__} record: {error}") from error


_NAMES: dict[Any, tuple[str, ...]] = {}


def _names(kind: Any) -> tuple[str, ...]:
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(each.name for each in fields(kind))
    return names
