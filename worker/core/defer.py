"""May a step's code begin before the end of the step before it is recorded? Pure.

With ``WORKFLOW_ASYNC_STEP_COMPLETED=1`` the code of an inline step may start while the transition that claims
it is on its way. If that transition is refused, the code ran for nothing: so the gate is open only where a
refusal is rare, where nothing else of the run could notice, and where one step is all there is to undo.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from world_redis.events import EventType
from world_redis.transition import Decision, Fact

from .dispatch import Row
from .plan import Dispatched, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Everything `closed_by` looks at, as it is when the transition is about to be sent."""

    ownership: bool  # WORKFLOW_INLINE_OWNERSHIP: without it the step may be started beside itself
    leaving: bool  # this process drains, or it was told that another delivery holds the carrier
    cancelling: bool  # the run was asked to cancel, or has ended
    ahead: bool  # the body was advanced on `facts`
    held: Mapping[str, int]  # message id → delivery number
    facts: Sequence[Fact]
    made: Plan
    settles: bool  # the transition settles something
    asks: bool  # the transition asks for the open entities
    open: Collection[str]  # calls of the body that have not ended, fresh ones included
    running: Collection[str]  # steps of the run whose code runs here, or ended without a recorded end


def closed_by(gate: Gate) -> str:
    """What keeps the gate closed, "" when it is open: then the one step of ``made.starts`` may begin."""
    reasons = {
        "no ownership": not gate.ownership,
        "leaving": gate.leaving,
        "cancelling": gate.cancelling,
        "not the first delivery": not _is_first(gate.held),
        "no clean end": not (gate.ahead and _is_clean(gate.facts)),
        "not one new step": not _starts_one(gate.made),
        "settles": gate.settles,
        "asks": gate.asks,
        "something else is open": set(gate.open) != {call.id for call in gate.made.starts},
        "something else runs": bool(set(gate.running) - {fact.id for fact in gate.facts}),
    }
    return next((reason for reason, closes in reasons.items() if closes), "")


def _is_first(held: Mapping[str, int]) -> bool:
    """One message, handed out for the first time: a first hand-out is a first attempt too."""
    return list(held.values()) == [1]


def _is_clean(facts: Sequence[Fact]) -> bool:
    return [fact.type for fact in facts] == [EventType.STEP_COMPLETED]


def _starts_one(made: Plan) -> bool:
    """Created, started, and nothing beside it."""
    if len(made.starts) != 1:
        return False
    (call,) = made.starts
    claim = [(EventType.STEP_CREATED, ""), (EventType.STEP_STARTED, "inline")]
    others = (made.facts, made.children, made.sends, made.withdraws)
    return (
        [(each.type, each.mode) for each in made.decisions] == claim
        and all(_is_plain(each, call.id) for each in made.decisions)
        and made.rows == [Dispatched(Row.INLINE, call.id)]
        and not (any(others) or made.partial or made.ends_run)
    )


def _is_plain(decision: Decision, step: str) -> bool:
    return decision.id == step and not decision.detach
