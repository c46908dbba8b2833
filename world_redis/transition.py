"""What a writer asks of the store in one call, and what it is answered.

*Facts* (a step's end, a wait's end) are judged by their own entity and epoch and written whatever the
position; payloads and cancel requests have scripts of their own. *Decisions* (creates, starts, the run's end,
sends, settles) are written together or not at all. See ``lua/append.lua`` for the order of checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .events import START, Answer, Event, EventType, Position
from .messages import Held, Kind


class Epoch(NamedTuple):
    """One execution of a step: slot and mark of its step_started."""

    slot: int
    mark: bytes


class Fact(NamedTuple):
    """An event that happened. Written if its own entity and epoch allow, whatever the position."""

    type: EventType
    id: str  # short correlation id
    data: bytes = b""
    at: int = 0  # ms; 0 = the script's clock
    epoch: Epoch | None = None  # of the execution it ends (step facts)
    send: Send | None = None  # step_retrying: the message that retries it, sent by the same verdict
    due_in: int = 0  # step_retrying: ms until the retry is due
    cause: str = "error"  # step_retrying: error (counts), crash (counts apart), drain (does not)


class Decision(NamedTuple):
    """An event the body's code caused."""

    type: EventType
    id: str = ""
    data: bytes = b""
    mode: str = ""  # step_started: "inline"; step_created of a child: "child"; else ""
    due_in: int = 0  # wait_created: ms from the script's clock
    due_at: int = 0  # wait_created: absolute ms (wins over due_in when > 0)
    token: str = ""  # hook_created
    detach: bool = False  # step_created of a child that outlives its parent's cancel and end


class Send(NamedTuple):
    """A message to have waiting. One that waits under its key is moved to the earlier due time."""

    kind: Kind
    key: str
    queue: str
    payload: bytes = b""
    due_in: int = 0  # ms from the script's clock; 0 = now
    due_at: int = 0  # absolute ms (wins over due_in when > 0)


class ChildStart(NamedTuple):
    """A child run created by its parent's transition (its step_created(kind child) is a Decision)."""

    run_id: str
    step: str  # short id in the parent
    fields: dict[str, str | int | bytes]  # run record fields, see entities.py
    data: bytes  # run_created's data (input)
    queue: str
    payload: bytes  # RunMessage


@dataclass(slots=True)
class Transition:
    """One call of ``append.lua``."""

    run_id: str
    mark: bytes  # 8 random bytes, kept on a resend
    delivery: Held | None = None  # the carrier: sequence numbers count under it
    seq: int = 0  # 1.. under one delivery; 0 without a delivery
    seen: int = 0  # highest slot the writer has read
    position: Position | None = None  # what the body had seen before `facts`, or with the news it went on
    advanced: bool = False  # the body was advanced on `facts` already, or on news: it bets on the position
    facts: Sequence[Fact] = ()
    decisions: Sequence[Decision] = ()
    children: Sequence[ChildStart] = ()
    sends: Sequence[Send] = ()
    withdraws: Sequence[str] = ()  # message keys ("timer", "s12"); a step so withdrawn never starts
    settles: Sequence[Held] = ()
    table: bool = False  # also answer the open entities


class OpenStep(NamedTuple):
    """A step not ended, as the store sees it now: what no log carries."""

    id: str
    state: str  # created | running | retrying | withdrawn
    mode: str  # of the running execution: inline | queue | external | child
    owner: Held | None  # the delivery that started the running execution
    owner_live: bool  # owner's message is in flight, its lease not over, under this or a later number
    lease_left: int  # ms of that lease, its doubted half included; 0 when not live
    due: int  # ms, of a retry
    has_message: bool  # a message waits or is in flight under its key
    epoch: Epoch | None
    starts: int  # executions started
    errors: int  # recorded errors (step_retrying that counted)
    crashes: int  # executions that ended without a recorded end
    first_started: int  # ms; 0 before the first start


class OpenWait(NamedTuple):
    id: str
    due: int  # ms


class OpenHook(NamedTuple):
    id: str
    token: str


class Table(NamedTuple):
    """The open entities of a run, as the store sees them now."""

    steps: tuple[OpenStep, ...]
    waits: tuple[OpenWait, ...]
    hooks: tuple[OpenHook, ...]
    rescue_armed: bool


class Start(NamedTuple):
    """A step_started as the store wrote it."""

    epoch: Epoch
    errors: int  # recorded before it
    first: int  # ms, the step's first start


@dataclass(slots=True)
class Reply:
    """The store's answer to a transition."""

    answer: Answer  # of the decisions; OK also when there were none and every fact was accepted
    unsettled: bool  # decisions were written, settles refused: an unseen decisive event exists
    facts: list[Answer]  # one per fact
    decisions: list[Answer]  # one per decision (the reason when they were refused)
    starts: dict[str, Start]  # steps this transition started, by short id
    now: int  # server time, ms
    head: int  # last slot of the log
    position: Position  # of the run, afterwards
    status: str  # of the run, afterwards
    cancel_requested: bool
    others: list[Event]  # after `seen`, written by others: at most 500 or 256 KiB
    own: Callable[[], list[Event]]  # makes those this transition wrote, the last of the log; none when `more`
    more: bool  # events follow on `others` that have to be read first
    as_sent: bool  # after `seen` the log holds all that this transition was to write, and nothing else
    table: Table | None = None
    parked: str = ""  # reason, when the run is parked

    @property
    def events(self) -> list[Event]:
        """After `seen`: of others, then those of this transition."""
        return [*self.others, *self.own()]

    @staticmethod
    def nothing(answer: Answer) -> Reply:
        """The reply when there is no run to speak of."""
        return Reply(answer, False, [], [], {}, 0, 0, START, "absent", False, [], list, False, False)
