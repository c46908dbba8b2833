"""Every step in every situation lands on exactly one row, and every row is reached.

The rows are said a second time here, each as a condition of its own, so that neither the order of the
product's arms nor a missing case can hide: exactly one condition holds, and it is the product's answer.
"""

from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest

from tests.core.situations import BOTH, ID, Case, cases, step_of
from worker.core.dispatch import RECOVERED_INLINE, Action, Here, Row, action_of, row_of, row_of_new


def is_claimed(case: Case) -> bool:
    """It runs from a claim whose owner may have died."""
    return case.state == "running" and case.mode in ("inline", "queue")


def is_elsewhere(case: Case) -> bool:
    return is_claimed(case) and case.ownership and not case.here


def is_recoverable(case: Case) -> bool:
    return is_elsewhere(case) and case.mode == "inline" and case.owner == "mine-earlier"


def waits_for_queue(case: Case) -> bool:
    return case.live and case.backstop and case.spec >= 6


CONDITIONS: dict[Row, Callable[[Case], bool]] = {
    Row.CREATED: lambda c: c.state == "created",
    Row.RETRYING: lambda c: c.state == "retrying",
    Row.WITHDRAWN: lambda c: c.state == "withdrawn",
    Row.CHILD: lambda c: c.state == "running" and c.mode == "child",
    Row.EXTERNAL: lambda c: c.state == "running" and c.mode == "external",
    Row.OWNERSHIP_OFF: lambda c: is_claimed(c) and not c.ownership,
    Row.IN_FLIGHT_HERE: lambda c: is_claimed(c) and c.ownership and c.here,
    Row.OWNED_RECOVERY: is_recoverable,
    Row.BACKSTOP: lambda c: is_elsewhere(c) and c.mode == "inline" and c.live and not is_recoverable(c),
    Row.LEASE_EXPIRED: (
        lambda c: is_elsewhere(c) and c.mode == "inline" and not c.live and not is_recoverable(c)
    ),
    Row.QUEUE_BACKSTOP: lambda c: is_elsewhere(c) and c.mode == "queue" and waits_for_queue(c),
    Row.QUEUE_EXPIRED: lambda c: is_elsewhere(c) and c.mode == "queue" and not waits_for_queue(c),
}
OF_NEW = {Row.INLINE, Row.QUEUE}


def test_every_step_in_every_situation_lands_on_exactly_one_row() -> None:
    for case in cases():
        assert [row for row, holds in CONDITIONS.items() if holds(case)] == [case.row], case


def test_every_row_is_reached() -> None:
    reached = Counter(case.row for case in cases())
    assert set(reached) | OF_NEW == set(Row)
    assert set(CONDITIONS) == set(Row) - OF_NEW


@pytest.mark.parametrize("mode", ["", "somehow"])
def test_a_running_step_of_an_unknown_mode_is_refused_with_all_that_was_seen(mode: str) -> None:
    with pytest.raises(AssertionError, match=ID):
        row_of(step_of("running", mode), Here({}, set()))


@pytest.mark.parametrize("state", ["created", "retrying"])
def test_a_step_that_never_started_is_never_taken_for_running(state: str) -> None:
    """Whatever a stale owner or a switch might suggest."""
    assert {case.row for case in cases() if case.state == state} == {Row(state)}


def test_a_later_delivery_of_a_message_held_here_is_somebody_else() -> None:
    """This session is superseded and does not know it yet: the step is not its own to recover."""
    case = Case("running", "inline", "mine-later", True, False, True, True, 6)
    assert case.row is Row.BACKSTOP


@pytest.mark.parametrize("spec", [0, 5])
def test_a_run_of_an_older_spec_requeues_at_once(spec: int) -> None:
    case = Case("running", "queue", "another", True, False, True, True, spec)
    assert case.row is Row.QUEUE_EXPIRED


# --- new steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("may", "free"), list(product(BOTH, BOTH)))
def test_a_new_step_runs_here_if_it_may_and_a_slot_is_free_else_anywhere(may: bool, free: bool) -> None:
    row = row_of_new(may_run_here=may, slot_free=free)
    assert row is (Row.INLINE if may and free else Row.QUEUE)


# --- actions --------------------------------------------------------------------------------------

ALWAYS = {
    Row.INLINE: Action.START,
    Row.QUEUE: Action.SEND,
    Row.IN_FLIGHT_HERE: Action.NOTHING,
    Row.BACKSTOP: Action.NOTHING,
    Row.LEASE_EXPIRED: Action.SEND,
    Row.QUEUE_BACKSTOP: Action.NOTHING,
    Row.QUEUE_EXPIRED: Action.SEND,
    Row.EXTERNAL: Action.NOTHING,
    Row.CHILD: Action.NOTHING,
    Row.WITHDRAWN: Action.NOTHING,
    Row.OWNERSHIP_OFF: Action.SEND,
}
DEPENDS = {Row.OWNED_RECOVERY, Row.CREATED, Row.RETRYING}


@pytest.mark.parametrize("row", ALWAYS)
def test_the_action_of_a_row(row: Row) -> None:
    for may, has_message, crashes in product(BOTH, BOTH, (0, RECOVERED_INLINE)):
        step = None if row in OF_NEW else step_of("running", has_message=has_message, crashes=crashes)
        assert action_of(row, step, may_run_here=may) is ALWAYS[row]


def test_every_row_has_an_action() -> None:
    assert set(ALWAYS) | DEPENDS == set(Row)


@pytest.mark.parametrize("row", [Row.CREATED, Row.RETRYING])
def test_a_message_that_waits_is_not_sent_again(row: Row) -> None:
    for may in BOTH:
        waits, lost = step_of(row.value, has_message=True), step_of(row.value, has_message=False)
        assert action_of(row, waits, may_run_here=may) is Action.NOTHING
        assert action_of(row, lost, may_run_here=may) is Action.SEND


@pytest.mark.parametrize("crashes", range(RECOVERED_INLINE + 2))
def test_a_recovered_step_starts_again_here_unless_it_was_recovered_twice(crashes: int) -> None:
    step = step_of("running", "inline", crashes=crashes)
    poison = crashes >= RECOVERED_INLINE
    recovered = action_of(Row.OWNED_RECOVERY, step, may_run_here=True)
    assert recovered is (Action.HAND_OVER if poison else Action.START)


def test_a_recovered_step_that_may_not_run_here_is_handed_to_the_queue() -> None:
    step = step_of("running", "inline")
    assert action_of(Row.OWNED_RECOVERY, step, may_run_here=False) is Action.HAND_OVER
