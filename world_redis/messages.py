"""Messages, deliveries, and what they carry.

A message is minted at publish and keeps its id over every redelivery, deferral, give-back and reroute:
they move it. A *delivery* is one hand-out of it, (message id, number): the number grows at every
hand-out and is never reset. Payloads are MessagePack, opaque to the scripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

import msgpack

from .events import Event, Position


class Kind(StrEnum):
    RUN = "run"  # advance a run's body
    STEP = "step"  # execute one queued step
    CANCEL = "cancel"  # pass a parent's cancel or end on to a child run
    RESCUE = "rescue"  # watches the owners of a run's running steps; never handed out


# Message keys of a run: at most one message waits under each. A step's is its short id.
WAKE, TIMER, DEADLINE, RESCUE = "wake", "timer", "deadline", "rescue"


# Payloads of wakes that say why the run should look at its open steps and timers.
REASONS = (b"rescue", b"look")


class News(NamedTuple):
    """What a new wake tells: the run's last decisive event when it was sent, which caused it."""

    event: Event
    position: Position  # of the run, after it


class Delivery(NamedTuple):
    """One hand-out of a message, as `take` returns it."""

    message_id: str
    number: int  # grows at every hand-out, never reset
    kind: Kind
    run_id: str
    key: str
    queue: str
    attempt: int  # consecutive hand-outs that ended without settle or deliberate deferral, from 1
    payload: bytes
    partition: int
    taken_at: int = 0  # ms, server time of the hand-out
    news: News | None = None  # of a wake, at its first hand-out only, and only if it is short

    @property
    def held(self) -> Held:
        return Held(self.message_id, self.number)


class Held(NamedTuple):
    """What names a delivery to the scripts."""

    message_id: str
    number: int


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every consumer of a run's messages needs without a read. Set at start, never changes."""

    workflow: str
    version: int
    spec: int
    queue: str  # the run's own queue
    created_at: int  # ms
    root_run_id: str
    parent_run_id: str = ""
    parent_step: str = ""  # short id of the parent's step of kind child
    deployment: str = ""
    traceparent: str = ""
    timeout: int = 0  # ms the run may take from its creation; 0: no limit
    start_key: str = ""  # idempotency key of its start


@dataclass(frozen=True, slots=True)
class RunMessage:
    """First message of a run. A later wake has an empty payload: the run is read, or lives here."""

    context: RunContext
    seed: bytes  # 16 random bytes: randomness, uuids and hook tokens of the body come from it
    input: bytes  # encoded arguments
    mark: bytes  # mark of run_created


@dataclass(frozen=True, slots=True)
class StepMessage:
    """One queued step."""

    context: RunContext | None  # None: an older producer; costs one read, counted
    name: str
    input: bytes
    options: dict[str, object]  # what with_options overrode: timeout, retry, executor
    created_at: int  # ms, of step_created


def pack_run_message(message: RunMessage) -> bytes:
    return _pack([_context(message.context), message.seed, message.input, message.mark])


def unpack_run_message(payload: bytes) -> RunMessage:
    """Raises ValueError for anything `pack_run_message` did not write."""
    try:
        context, seed, input, mark = msgpack.unpackb(payload)
        return RunMessage(RunContext(*context), seed, input, mark)
    except Exception as error:
        raise ValueError(f"not a run message: {error}") from error


def pack_step_message(message: StepMessage) -> bytes:
    context = None if message.context is None else _context(message.context)
    return _pack([context, message.name, message.input, message.options, message.created_at])


def unpack_step_message(payload: bytes) -> StepMessage:
    """Raises ValueError for anything `pack_step_message` did not write."""
    try:
        context, name, input, options, created_at = msgpack.unpackb(payload)
        run_context = None if context is None else RunContext(*context)
        return StepMessage(run_context, name, input, options, created_at)
    except Exception as error:
        raise ValueError(f"not a step message: {error}") from error


_context = attrgetter(*RunContext.__slots__)  # its fields, in order


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed
