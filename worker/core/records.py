"""What the ``data`` of a log event holds.

A record is packed as one MessagePack array of its fields in order; values of users travel inside as
the bytes the codec made. A field added later goes to the end with a default: an old record then
reads with the default, and a newer one is read by old code without its tail.

Two events hold no record but a value's bytes alone: ``step_completed`` and ``run_completed`` (the
result), so that a child's end can be copied into its parent as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgpack

R = TypeVar("R", bound=tuple[Any, ...])

_NONE: Mapping[str, Any] = {}


class StepCreated(NamedTuple):
    """``step_created``, also of a child run."""

    name: str  # of the step, or of the child's workflow
    input: bytes
    queue: str = ""  # "": the run's own queue
    options: Mapping[str, Any] = _NONE
    child_run_id: str = ""  # not "": this is a child
    version: int = 0  # of the child's workflow

    @property
    def label(self) -> str:
        return f"child {self.name}" if self.child_run_id else f"step {self.name}"


class StepRetrying(NamedTuple):
    """``step_retrying``."""

    failure: bytes  # encoded
    delay: int  # ms until the next attempt
    counted: bool  # False: an interruption, not an attempt


class Failed(NamedTuple):
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


class CancelRequested(NamedTuple):
    """``run_cancel_requested``."""

    reason: str = ""


class HookCreated(NamedTuple):
    """``hook_created``."""

    token: str
    metadata: bytes = b""
    name: str = ""  # of the payload class


class HookConflict(NamedTuple):
    """``hook_conflict``."""

    token: str
    run_id: str = ""  # that holds the token


class HookReceived(NamedTuple):
    """``hook_received``."""

    payload: bytes
    resume_id: str = ""


class AttributesSet(NamedTuple):
    """``attr_set``."""

    changes: Mapping[str, str | None]


class PatchRecorded(NamedTuple):
    """``patch_recorded``."""

    change_id: str


def pack(record: tuple[Any, ...]) -> bytes:
    """The bytes of a record."""
    packed: bytes = msgpack.packb(record)
    return packed


def unpack(kind: type[R], data: bytes) -> R:
    """Read a record of `kind`. Raises ValueError for anything `pack` did not write."""
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    try:
        return kind(*msgpack.unpackb(data)[: len(fields)])
    except Exception as error:
        raise ValueError(f"not a {kind.__name__} record: {error}") from error
