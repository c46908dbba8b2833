"""What the store holds, as read back: a run's record, a message's header, a step's entity.

Who sets each field is said here, next to it. Open steps, waits and hooks as a session sees them are in
`transition` (`OpenStep`, `OpenWait`, `OpenHook`): those carry what only a script can tell, such as the lease
left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgpack

from .events import FINISHED, Position
from .log import news_of
from .messages import News
from .transition import Epoch


@dataclass(frozen=True, slots=True)
class Run:
    """A run's record. Unless a comment says otherwise a field is set by `run_start` and never changes."""

    workflow: str
    version: int
    spec: int
    queue: str
    created: int  # ms, the starter's clock
    root: str  # run id
    parent: str  # run id, "" for none
    parent_step: str  # short id of the parent's step of kind child
    deployment: str
    traceparent: str
    seed: bytes
    status: str  # every script that moves the run: see RULES
    head: int  # last slot of the log; every script that appends
    position: Position  # every script that appends a decisive event
    settled: Position | None  # append: where the body stood when its last pass was settled; None: never
    cancel_requested: bool  # run_cancel, once
    started: int  # ms, append with run_started; 0: not yet
    ended: int  # ms, whoever ends the run; 0: not yet
    parked: str  # reason; run_refuse and message_bury set it, run_unpark and the run's end clear it
    park_detail: str  # with parked
    refused_since: int  # ms; run_refuse sets it, a committed pass and run_unpark clear it; 0: not refused
    refused_by: str  # builds; run_refuse adds to it, a committed pass clears it

    @property
    def finished(self) -> bool:
        return self.status in FINISHED


def run_of(record: Mapping[str, bytes]) -> Run:
    """A run from the fields of its hash."""

    def text(name: str) -> str:
        return record.get(name, b"").decode()

    def number(name: str) -> int:
        return int(record.get(name) or 0)

    return Run(
        workflow=text("workflow"),
        version=number("version"),
        spec=number("spec"),
        queue=text("queue"),
        created=number("created"),
        root=text("root"),
        parent=text("parent"),
        parent_step=text("parent_step"),
        deployment=text("deployment"),
        traceparent=text("traceparent"),
        seed=record.get("seed", b""),
        status=text("status"),
        head=number("slot"),
        position=Position(number("count"), number("pslot"), record.get("pmark", b"")),
        settled=settled_of(record),
        cancel_requested=text("cancel") == "1",
        started=number("started"),
        ended=number("ended"),
        parked=text("parked"),
        park_detail=text("park_detail"),
        refused_since=number("refused_since"),
        refused_by=text("refused_by"),
    )


def settled_of(record: Mapping[str, bytes]) -> Position | None:
    """`Run.settled` alone."""
    raw = record.get("settled")
    if not raw:
        return None
    decided, slot, mark = raw.split(b":", 2)
    return Position(int(decided), int(slot), mark)


class MessageState(NamedTuple):
    """A message's header. Set at publish: kind, run, key, published. The rest moves with the message."""

    id: str
    kind: str  # see messages.Kind
    run: str
    key: str
    queue: str  # a reroute changes it
    state: str  # r ready · d delayed · f in flight
    entry: str  # its id in the ready stream, while ready
    number: int  # of the last hand-out
    attempt: int
    holder: str  # consumer of the last hand-out
    seq: int  # last transition under the present delivery
    # Told at a renewal: 0 nothing · 1 cancel asked for · 2 stop this step · 3 the run is over · -1 look.
    cancel: int
    owners: Mapping[str, int]  # of a rescue: owner message → running steps it owns
    doubted: bool  # in flight, and silent for half a lease
    news: News | None  # of a wake not handed out yet


def message_of(id: str, raw: bytes) -> MessageState:
    """A message from its packed header (see ``lua/lib/20_messages.lua``)."""
    kind, run, key, queue, state, entry, number, attempt, holder, seq, answer, _, cancel, owners, doubted = (
        msgpack.unpackb(raw, raw=True, strict_map_key=False)
    )
    pairs = list(owners)
    return MessageState(
        id,
        kind.decode(),
        run.decode(),
        key.decode(),
        queue.decode(),
        state.decode(),
        entry.decode(),
        number,
        attempt,
        holder.decode(),
        seq,
        cancel,
        {owner.decode(): count for owner, count in zip(pairs[::2], pairs[1::2], strict=True)},
        doubted == 1,
        news_of(answer) if answer and state == b"r" else None,
    )


class StepState(NamedTuple):
    """A step's entity (see ``lua/lib/35_entities.lua``)."""

    state: str  # created | running | retrying | withdrawn
    mode: str  # inline | queue | external | child, while running
    owner: str  # message id (of a child: its run id), while running
    number: int  # of the owner's delivery
    epoch: Epoch  # slot 0: not running, or a child
    due: int  # ms, of a retry
    starts: int
    errors: int
    crashes: int
    first: int  # ms, first start; 0: never
    detach: bool


def step_of(raw: bytes) -> StepState:
    state, mode, owner, number, slot, mark, due, starts, errors, crashes, first, detach = msgpack.unpackb(
        raw, raw=True
    )
    return StepState(
        state.decode(),
        mode.decode(),
        owner.decode(),
        number,
        Epoch(slot, mark),
        due,
        starts,
        errors,
        crashes,
        first,
        detach == 1,
    )
