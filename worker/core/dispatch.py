"""What to do about each step that is pending when a body is quiet: one table, one row each.

Pure. `row_of` looks at the step as the store sees it and at what this session holds; the row's name is
counted and used as the test id. `action_of` says what the row leads to.

| row | the step | action |
|---|---|---|
| inline | new, may run here, an inline slot is free | created + started here |
| queue | new, otherwise | created + step message |
| in-flight-here | its code runs here, or its end is not recorded yet | see to the rescue |
| owned-recovery | running, its owner is an earlier delivery of a message held here | start again here |
| backstop | running inline, its owner's message is held under a lease that is not over | see to the rescue |
| lease-expired | running inline, its owner's message is over, waiting or gone | step message now |
| queue-backstop | running from a live queue delivery | see to the rescue |
| queue-expired | running from a queue delivery that is over or gone | step message now |
| external | handed to another system, before its end | see to the rescue |
| child | a child run that has not ended | nothing |
| created, retrying | its message waits | ensure it |
| withdrawn | its awaiter was cancelled before it ran | nothing |
| ownership-off | running, WORKFLOW_INLINE_OWNERSHIP=0 | step message now |
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from world_redis.transition import OpenStep

RECOVERED_INLINE = 2  # a step recovered this often runs from the queue, away from its run's worker
SPEC_REDELIVERS = 6  # runs of an older spec get no queue backstop: their step is requeued at once


class Row(StrEnum):
    INLINE = "inline"
    QUEUE = "queue"
    IN_FLIGHT_HERE = "in-flight-here"
    OWNED_RECOVERY = "owned-recovery"
    BACKSTOP = "backstop"
    LEASE_EXPIRED = "lease-expired"
    QUEUE_BACKSTOP = "queue-backstop"
    QUEUE_EXPIRED = "queue-expired"
    EXTERNAL = "external"
    CHILD = "child"
    CREATED = "created"
    RETRYING = "retrying"
    WITHDRAWN = "withdrawn"
    OWNERSHIP_OFF = "ownership-off"


# Rows in which somebody is trusted to go on: the rescue, which watches over him, is armed if it is not.
RESCUED = frozenset({Row.IN_FLIGHT_HERE, Row.BACKSTOP, Row.QUEUE_BACKSTOP, Row.EXTERNAL})


class Action(StrEnum):
    START = "start"  # created (when new) + started, and execute it here
    SEND = "send"  # a step message now, or at the retry's due time
    HAND_OVER = "hand-over"  # recovered too often here: step_retrying (crash) + a step message
    NOTHING = "nothing"


@dataclass(slots=True)
class Here:
    """What this session knows that the store does not."""

    held: Mapping[str, int]  # message id → delivery number
    in_flight: Set[str]  # steps executing here, or whose end is not recorded yet
    inline_ownership: bool = True
    queue_backstop: bool = True
    spec: int = SPEC_REDELIVERS
    detached: Set[str] = frozenset()  # code that runs here without a claim: not to be started beside itself


def row_of_new(*, may_run_here: bool, slot_free: bool) -> Row:
    """The row of a step the log does not hold yet."""
    return Row.INLINE if may_run_here and slot_free else Row.QUEUE


def row_of(step: OpenStep, here: Here) -> Row:
    """The one row a recorded, open step is in."""
    match (step.state, step.mode):
        case ("created", _):
            return Row.CREATED
        case ("retrying", _):
            return Row.RETRYING
        case ("withdrawn", _):
            return Row.WITHDRAWN
        case ("running", "child"):
            return Row.CHILD
        case ("running", "external"):
            return Row.EXTERNAL
        case ("running", "inline" | "queue") if not here.inline_ownership:
            return Row.OWNERSHIP_OFF
        case ("running", _) if step.id in here.in_flight:
            return Row.IN_FLIGHT_HERE
        case ("running", "inline"):
            return _inline_row(step, here)
        case ("running", "queue"):
            return _queue_row(step, here)
        case seen:
            raise AssertionError(f"no row for a step in {seen}: {step}")


def _inline_row(step: OpenStep, here: Here) -> Row:
    owner = step.owner
    if owner is not None and here.held.get(owner.message_id, 0) > owner.number:
        return Row.OWNED_RECOVERY
    return Row.BACKSTOP if step.owner_live else Row.LEASE_EXPIRED


def _queue_row(step: OpenStep, here: Here) -> Row:
    waits = here.queue_backstop and here.spec >= SPEC_REDELIVERS
    return Row.QUEUE_BACKSTOP if step.owner_live and waits else Row.QUEUE_EXPIRED


def action_of(row: Row, step: OpenStep | None, *, may_run_here: bool) -> Action:
    """What a row leads to. `step` is None for a new one; `may_run_here` includes a free slot."""
    match row:
        case Row.INLINE:
            return Action.START
        case Row.OWNED_RECOVERY:
            assert step is not None
            poison = step.crashes >= RECOVERED_INLINE
            return Action.START if may_run_here and not poison else Action.HAND_OVER
        case Row.CREATED | Row.RETRYING:
            assert step is not None
            return Action.NOTHING if step.has_message else Action.SEND
        case Row.QUEUE | Row.LEASE_EXPIRED | Row.QUEUE_EXPIRED | Row.OWNERSHIP_OFF:
            return Action.SEND
        case _:
            return Action.NOTHING
