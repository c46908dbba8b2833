"""A run's log: one transition in, the unseen events out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from .events import RULES, Answer, Event, EventType, Position
from .ids import partition_of
from .messages import Held, News
from .scripts import Caller, ScriptCall, script_call, unpack_reply
from .transition import (
    ChildStart,
    Decision,
    Epoch,
    Fact,
    OpenHook,
    OpenStep,
    OpenWait,
    Reply,
    Send,
    Start,
    Table,
    Transition,
)

MAX_EVENTS = 25_000
DAY_MS = 86_400_000
# As the scripts write them.
ANSWERS = {answer.value.encode(): answer for answer in Answer}
CODES = {rule.type: rule.code for rule in RULES}
TYPES = {rule.code.encode(): rule.type for rule in RULES}
NOTHING_NEW = 1 << 50  # a slot no log reaches: as `seen` it asks for no events


@dataclass(frozen=True, slots=True)
class Limits:
    max_events: int = MAX_EVENTS  # a log's ceiling
    retention_ms: int = 7 * DAY_MS  # how long a finished run stays readable


class Snapshot(NamedTuple):
    """What `read` found."""

    now: int
    head: int
    position: Position
    status: str
    cancel_requested: bool
    events: list[Event]
    more: bool
    table: Table | None
    record: dict[str, bytes]


class Log:
    """Reads and writes of one consumer. `consumer` is the worker's id, part of every fence."""

    def __init__(self, caller: Caller, consumer: str, limits: Limits | None = None) -> None:
        self._call = caller
        self._consumer = consumer
        self._limits = limits or Limits()

    async def append(
        self,
        transition: Transition,
        *,
        queue: str,
        parent: str = "",
        parent_data: bytes = b"",
        meanwhile: Callable[[], object] | None = None,
    ) -> Reply:
        """Commit a transition. `queue` is the run's own; `parent` (run id) is told when the run ends, with
        `parent_data` as its step's event data. `meanwhile`, which must not raise, is called while the answer
        is on its way, after each sending. The same Transition may be sent again: it changes nothing."""
        runs = [transition.run_id]
        if transition.children:
            runs += [child.run_id for child in transition.children]
        if parent:
            runs.append(parent)
        call = ScriptCall(
            "settle" if _only_settles(transition) else "append",
            partition_of(transition.run_id),
            _queues(transition, queue),
            runs,
            self._arguments(transition, bool(parent), parent_data),
            transition.mark,
            meanwhile,
        )
        return _reply(await self._call(call), transition)

    async def read(
        self, run_id: str, *, seen: int = 0, table: bool = False, record: bool = True
    ) -> Snapshot | None:
        """A page of the log after `seen`, with the open entities and the record if asked. None: no such
        run."""
        call = script_call(
            "run_read", partition_of(run_id), [run_id, seen, int(table), int(record)], runs=[run_id]
        )
        reply = await self._call(call)
        if reply[0] != b"ok":
            return None
        fields = reply[9]
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return Snapshot(
            now=reply[1],
            head=reply[2],
            position=Position(*reply[3]),
            status=reply[4].decode(),
            cancel_requested=reply[5] == 1,
            events=[event_of(entry) for entry in reply[6]],
            more=reply[7] == 1,
            table=table_of(reply[8]),
            record={name.decode(): value for name, value in pairs},
        )

    def _arguments(self, t: Transition, has_parent: bool, parent_data: bytes) -> list[Any]:
        return [
            t.run_id,
            (*(t.delivery or ("", 0)), self._consumer),
            t.seq,
            t.seen,
            t.position or (),
            int(t.advanced),
            list(map(_fact, t.facts)),
            list(map(_decision, t.decisions)),
            list(map(_child, t.children)),
            list(map(_send, t.sends)),
            t.withdraws,
            t.settles,
            int(t.table),
            int(has_parent),
            self._limits.max_events,
            self._limits.retention_ms,
            parent_data,
        ]


def _only_settles(t: Transition) -> bool:
    return not (t.facts or t.decisions or t.children or t.sends)


def _queues(t: Transition, own: str) -> list[str]:
    queues = [own]
    for send in t.sends:
        queues.append(send.queue)
    for child in t.children:
        queues.append(child.queue)
    for fact in t.facts:
        if fact.send:
            queues.append(fact.send.queue)
    return list(dict.fromkeys(queues)) if len(queues) > 1 else queues


def _fact(fact: Fact) -> list[Any]:
    type, id, data, at, epoch, send, due_in, cause = fact
    slot, mark = epoch or (0, b"")
    row = [CODES[type], id, data, at, slot, mark]
    if type is EventType.STEP_RETRYING:
        row += [_send(send) if send else [], due_in, cause]
    return row


def _decision(decision: Decision) -> list[Any]:
    type, id, data, mode, due_in, due_at, token, detach = decision
    row: list[Any] = [CODES[type], id, data]
    if due_in or due_at or token or detach:
        row += [mode, due_in, due_at, token, int(detach)]
    elif mode:
        row.append(mode)
    return row


def _child(child: ChildStart) -> list[Any]:
    fields = list(chain.from_iterable(child.fields.items()))
    return [child.run_id, child.step, fields, child.data, child.queue, child.payload]


def _send(send: Send) -> list[Any]:
    return [send.kind.value, send.key, send.queue, send.payload, send.due_in, send.due_at]


def _reply(reply: Sequence[Any], t: Transition) -> Reply:
    if reply[0] == b"not_found":
        return Reply.nothing(Answer.NOT_FOUND)
    (
        word,
        unsettled,
        facts,
        decisions,
        starts,
        now,
        head,
        position,
        status,
        cancel_requested,
        events,
        more,
        table,
        parked,
        written,
    ) = reply
    return Reply(
        ANSWERS[word],
        unsettled == 1,
        list(map(ANSWERS.__getitem__, facts)),
        list(map(ANSWERS.__getitem__, decisions)),
        {step.decode(): Start(Epoch(slot, t.mark), errors, first) for step, slot, errors, first in starts},
        now,
        head,
        Position(*position),
        status.decode(),
        cancel_requested == 1,
        list(map(event_of, events)),
        functools.partial(_written, written, head, t),
        more == 1,
        not events and not more and len(written) == len(t.facts) + len(t.decisions),
        table_of(table),
        parked.decode(),
    )


def _written(rows: Sequence[Sequence[Any]], head: int, t: Transition) -> list[Event]:
    """The events `t` wrote, the last of the log. Types, ids and data are its own and were not sent back."""
    parts: list[Fact | Decision] = [*t.facts, *t.decisions]
    events = []
    for slot, (place, at, mark, extra) in enumerate(rows, head - len(rows) + 1):
        part = parts[place - 1]
        events.append(Event(slot, part.type, part.id, at, mark, part.data, extra.decode()))
    return events


def event_of(entry: Sequence[Any]) -> Event:
    """A raw stream entry: id ``<slot>-0``, fields t (code), i (id), a (at), m (mark), d (data), x (extra)."""
    slot, fields = entry
    return Event(
        slot=int(slot[:-2]),
        type=TYPES[fields[1]],
        id=fields[3].decode(),
        at=int(fields[5]),
        mark=fields[7],
        data=fields[9],
        extra=fields[11].decode(),
    )


def news_of(raw: bytes) -> News:
    """What a wake tells: packed, the number of decisive events and the entry of the last one."""
    count, entry = unpack_reply(raw)
    event = event_of(entry)
    return News(event, Position(count, event.slot, event.mark))


def table_of(raw: Any) -> Table | None:
    if raw == 0:
        return None
    steps, waits, hooks, rescue = raw
    return Table(
        steps=tuple(_open_step(row) for row in steps),
        waits=tuple(OpenWait(row[0].decode(), int(row[1])) for row in waits),
        hooks=tuple(OpenHook(row[0].decode(), row[1].decode()) for row in hooks),
        rescue_armed=rescue == 1,
    )


def _open_step(row: Sequence[Any]) -> OpenStep:
    (
        id,
        state,
        mode,
        owner,
        number,
        live,
        left,
        due,
        message,
        slot,
        mark,
        starts,
        errors,
        crashes,
        first,
    ) = row
    return OpenStep(
        id=id.decode(),
        state=state.decode(),
        mode=mode.decode(),
        owner=Held(owner.decode(), number) if owner else None,
        owner_live=live == 1,
        lease_left=int(left),
        due=int(due),
        has_message=message == 1,
        epoch=Epoch(slot, mark) if slot else None,
        starts=starts,
        errors=errors,
        crashes=crashes,
        first_started=first,
    )
