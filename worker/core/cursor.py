"""Matching the calls a body issues with the create events of its log.

The log is a sequence of decisive events D1..Dk with create events between. What a body has issued
when it is quiet after Dk, call it C(k), depends on D1..Dk alone, and C(k) is a prefix of C(k+1). A
writer records a call only after its body has issued it, so every create event in a slot before
D(k+1) must be in C(k), in the order of the calls. That is the whole check, and it is made once per
quiescence, never earlier: a create may stand late in the log, never too early.

Two kinds of calls have a looser rule:

- A call whose awaiter was cancelled before it was recorded is *void*: one writer may have recorded
  it before the cancel, another never will. It is passed over, and accepted wherever it turns up.
- Patches have no place in the order, so that code may stop asking: see `patched`.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from world_redis.events import Event, EventType

from .calls import (
    AttributesCall,
    Call,
    ChildCall,
    DisposeCall,
    Drift,
    HookCall,
    PatchCall,
    StepCall,
    WaitCall,
)
from .records import PatchRecorded, StepCreated, unpack

_NAMED: Final = (StepCall, ChildCall)
_CREATES = {
    EventType.STEP_CREATED: (StepCall, ChildCall),
    EventType.WAIT_CREATED: (WaitCall,),
    EventType.HOOK_CREATED: (HookCall,),
    EventType.HOOK_CONFLICT: (HookCall,),  # stands in the place of hook_created
    EventType.ATTR_SET: (AttributesCall,),
}
# The body causes these as well, but they have no place in the order of the calls.
_UNORDERED = frozenset({EventType.PATCH_RECORDED, EventType.HOOK_DISPOSED})


class Mismatch(NamedTuple):
    """A create event that does not fit."""

    slot: int
    recorded: str
    called: str
    guessed: bool  # a patch was answered without knowing this event: rebuild, do not park


class Cursor:
    """Pairs issued calls with recorded ones."""

    def __init__(self) -> None:
        self.seen = 0  # highest slot learned
        self.fresh: dict[str, Call] = {}  # issued, not recorded, not void; in the order of issue
        self.drifts: list[Drift] = []
        self.revived: list[Call] = []  # void calls that turned out to be recorded
        self.contradicted = False  # the log holds another patch under an id given here
        self._creates: deque[Event] = deque()  # recorded, not matched yet
        self._recorded: set[str] = set()  # ids of every create event learned
        self._issued: deque[Call] = deque()  # not matched yet, in the order of issue
        self._ids: set[str] = set()  # of everything issued
        self._void: dict[str, Call] = {}  # dropped before they were recorded
        self._disposed: set[str] = set()  # hooks the log closed
        self._patches: dict[str, str] = {}  # change id → id of the create before it ("" for none)
        self._patch_number = 0
        self._guesses = 0  # patches answered true that the log does not hold yet
        self._last_id = ""

    # --- what the log says ------------------------------------------------------------------------

    def learn(self, event: Event) -> None:
        """Take one event, in slot order. Raises ValueError when its record cannot be read."""
        self.seen = event.slot
        type, id = event.type, event.id
        if type in _CREATES:
            # An attribute write without an id came from a step or a client, not from the body.
            if id and id not in self._recorded:
                self._creates.append(event)
                self._recorded.add(id)
                self._last_id = id
        elif type in _UNORDERED:
            self._learn_unordered(event)

    def _learn_unordered(self, event: Event) -> None:
        if event.type is EventType.PATCH_RECORDED:
            self._learn_patch(event)
        else:
            self._disposed.add(event.id)
            self.fresh.pop(f"-{event.id}", None)

    def _learn_patch(self, event: Event) -> None:
        change_id = unpack(PatchRecorded, event.data).change_id
        self._patches.setdefault(change_id, self._last_id)
        self._patch_number = max(self._patch_number, int(event.id[1:]))
        mine = self.fresh.pop(event.id, None)
        if isinstance(mine, PatchCall):
            self._guesses -= 1
            self.contradicted |= mine.change_id != change_id

    def confirm(self, ids: list[str], head: int) -> bool:
        """The log goes on, up to slot `head`, with the creates of these calls, just as they were planned, and
        with no others: they are learned and matched. False, and nothing done, when these calls are not the
        next to be recorded, or when earlier creates are not matched yet."""
        issued = (call.id for call in self._issued if call.id in self.fresh)
        if self._creates or list(islice(issued, len(ids))) != ids:
            return False
        for id in ids:
            call = self._next_issued()
            self._issued.popleft()
            del self.fresh[id]
            self._recorded.add(id)
            self._last_id = id
            if isinstance(call, StepCall):
                call.packed = b""
        self.seen = head
        return True

    # --- what the body says -----------------------------------------------------------------------

    def issue(self, call: Call) -> None:
        """Take one call, in the order of issue."""
        self.fresh[call.id] = call
        self._issued.append(call)
        self._ids.add(call.id)

    def dispose(self, hook_id: str) -> None:
        """Take the closing of a hook. It has no place in the order: its hook names it."""
        if hook_id not in self._disposed:
            self.fresh[f"-{hook_id}"] = DisposeCall(hook_id)

    def void(self, id: str) -> None:
        """Nobody waits any more for this call, and it was not recorded: it need not be."""
        call = self.fresh.pop(id, None)
        if call is not None:
            self._void[id] = call

    def patched(self, change_id: str) -> PatchCall | bool:
        """Answer ``patched(change_id)`` at this point of the calls.

        True when the log recorded it at or before this point; else False when the log has any call
        issued after this point (it was recorded by code without the patch); else a call to record,
        which means true.
        """
        before = self._patches.get(change_id)
        if before is not None and (before == "" or before in self._ids):
            return True
        if any(event.id not in self._ids for event in self._creates):
            return False
        self._patch_number += 1
        self._guesses += 1
        call = PatchCall(f"p{self._patch_number}", change_id)
        self.fresh[call.id] = call
        return call

    def is_ahead(self, slot: int) -> bool:
        """Whether the log holds, up to `slot`, a call this body has not issued yet."""
        creates = self._creates
        return bool(creates) and any(event.id not in self._ids for event in creates if event.slot <= slot)

    # --- the check --------------------------------------------------------------------------------

    def match(self, upto: int | None) -> Mismatch | None:
        """Match the create events up to slot `upto` (None: all known), to be called when the body
        is quiet and `upto` is the slot of the next decisive event."""
        creates = self._creates
        while creates and (upto is None or creates[0].slot <= upto):
            mismatch = self._match_one(creates[0])
            if mismatch is not None:
                return mismatch
            creates.popleft()
        return None

    def _match_one(self, event: Event) -> Mismatch | None:
        call = self._void.get(event.id)
        if call is None:
            call = self._next_issued()
            if call is None or call.id != event.id:
                return self._mismatch(event, call)
            self._issued.popleft()
        problem = self._compare(event, call)
        if problem is None and self.fresh.pop(event.id, None) is None:
            self.revived.append(self._void.pop(event.id))
        return problem

    def _next_issued(self) -> Call | None:
        """The first call not matched that has to be recorded."""
        issued = self._issued
        while issued and issued[0].id not in self.fresh:
            issued.popleft()  # void
        return issued[0] if issued else None

    def _compare(self, event: Event, call: Call) -> Mismatch | None:
        if not isinstance(call, _CREATES[event.type]):
            return self._mismatch(event, call)
        if isinstance(call, StepCall) and call.packed:
            planned, call.packed = call.packed, b""
            if event.data == planned:  # written here: nothing can differ
                return None
        if isinstance(call, _NAMED):
            record = unpack(StepCreated, event.data)
            if record.name != call.name or bool(record.child_run_id) != isinstance(call, ChildCall):
                return self._mismatch(event, call)
            if record.input != call.input:
                self.drifts.append(Drift(event.slot, call.id, call.name))
        return None

    def _mismatch(self, event: Event, call: Call | None) -> Mismatch:
        called = "nothing more" if call is None else f"{call.label} ({call.id})"
        return Mismatch(event.slot, describe(event), called, self._guesses > 0)


def describe(event: Event) -> str:
    """A create event for people: ``step charge (s3)``."""
    if event.type is EventType.STEP_CREATED:
        return f"{unpack(StepCreated, event.data).label} ({event.id})"
    return f"{event.type.value.rpartition('_')[0].replace('_', ' ')} ({event.id})"
