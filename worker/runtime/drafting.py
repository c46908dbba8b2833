"""A session's next transition: what there is to write, and what of the hand it settles."""

from __future__ import annotations

from collections.abc import Sequence

from world_redis.events import Position
from world_redis.ids import new_mark
from world_redis.log import NOTHING_NEW
from world_redis.messages import Held
from world_redis.transition import Fact, Transition

from ..core.plan import Plan
from .parts import Parts


class Drafting:
    def __init__(self, parts: Parts) -> None:
        self._run_id, _, self._hand, self._executions, self._known, _ = parts

    def draft(
        self, facts: Sequence[Fact], made: Plan, position: Position | None, *, ahead: bool, keeps_hand: bool
    ) -> Transition | None:
        """The transition, or None when there is nothing to write or to ask. `ahead`: the body was advanced,
        and `made` bets on `position`; `keeps_hand`: nothing is settled."""
        settles = [] if keeps_hand else self._settles(facts, made, ahead)
        known = self._known
        asks = bool(facts or settles or not made.empty or (known.need_table and known.body))
        if not asks or (not self._hand and not facts):
            return None
        table, known.need_table = known.need_table, False
        # Taken while the call is out, a timer must not count as armed by it.
        if self._hand.fired:
            self._hand.fired -= {send.key for send in made.sends}
        return Transition(
            run_id=self._run_id,
            mark=new_mark(),
            delivery=self._hand.carrier,
            seq=self._hand.next_seq() if self._hand else 0,
            seen=known.seen if known.body is not None else NOTHING_NEW,
            position=position,
            advanced=ahead,
            facts=[*facts, *made.facts],
            decisions=made.decisions,
            children=made.children,
            sends=made.sends,
            withdraws=made.withdraws,
            settles=settles,
            table=table,
        )

    def _settles(self, facts: Sequence[Fact], made: Plan, ahead: bool) -> list[Held]:
        """Everything held when nothing runs here any more and all is decided, else all but the carrier, which
        owns what runs. The carrier goes last."""
        known = self._known
        if known.body is None and not known.over:
            return []
        undecided = (bool(facts) and not ahead) or made.partial or bool(made.facts)
        # What a table that was asked for will show is still to be dispatched.
        undecided |= known.need_table and known.body is not None
        busy = bool(self._executions.running) or bool(made.starts) or undecided
        held = self._hand.all
        return held[:0:-1] if busy else held[::-1]
