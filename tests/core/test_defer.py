"""When the code of a step may start before its claim is committed."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from worker.core.calls import StepCall
from worker.core.defer import Gate, closed_by
from worker.core.dispatch import Row
from worker.core.plan import Dispatched, Plan
from world_redis.events import EventType as E
from world_redis.messages import Kind
from world_redis.transition import ChildStart, Decision, Epoch, Fact, Send

CALL = StepCall("s2", "charge", b"[]", "", {}, False)
END = Fact(E.STEP_COMPLETED, "s1", b"1", epoch=Epoch(3, b"marktext"))


def made(**given: Any) -> Plan:
    """The plan that opens the gate; `given` is what differs."""
    plan = Plan()
    plan.decisions = [
        Decision(E.STEP_CREATED, "s2", b"record"),
        Decision(E.STEP_STARTED, "s2", mode="inline"),
    ]
    plan.starts = [CALL]
    plan.rows = [Dispatched(Row.INLINE, "s2")]
    for name, value in given.items():
        setattr(plan, name, value)
    return plan


OPEN = Gate(
    ownership=True,
    leaving=False,
    cancelling=False,
    ahead=True,
    held={"m1": 1},
    facts=[END],
    made=made(),
    settles=False,
    asks=False,
    open=["s2"],
    running=["s1"],
)

# What closes it, in the order in which the reasons are told.
CLOSES: dict[str, tuple[str, Any]] = {
    "no ownership": ("ownership", False),
    "leaving": ("leaving", True),
    "cancelling": ("cancelling", True),
    "not the first delivery": ("held", {"m1": 2}),
    "no clean end": ("facts", [END._replace(type=E.STEP_FAILED)]),
    "not one new step": ("made", made(partial=True)),
    "settles": ("settles", True),
    "asks": ("asks", True),
    "something else is open": ("open", ["s2", "h1"]),
    "something else runs": ("running", ["s1", "s7"]),
}


def test_one_clean_step_after_another_opens_it() -> None:
    assert closed_by(OPEN) == ""


def test_it_is_open_when_nothing_closes_it_and_names_the_first_reason_otherwise() -> None:
    for chosen in product((False, True), repeat=len(CLOSES)):
        reasons = [reason for reason, is_so in zip(CLOSES, chosen, strict=True) if is_so]
        gate = replace(OPEN, **dict(CLOSES[reason] for reason in reasons))
        assert closed_by(gate) == (reasons[0] if reasons else "")


@pytest.mark.parametrize("held", [{}, {"m1": 2}, {"m1": 1, "m2": 1}, {"m1": 0}])
def test_only_one_message_handed_out_for_the_first_time_opens_it(held: dict[str, int]) -> None:
    assert closed_by(replace(OPEN, held=held)) == "not the first delivery"


@pytest.mark.parametrize(
    "facts",
    [
        [],
        [END, END._replace(id="s3")],
        [END, Fact(E.WAIT_COMPLETED, "w1")],
        [Fact(E.WAIT_COMPLETED, "w1")],
        [END._replace(type=E.STEP_FAILED)],
        [END._replace(type=E.STEP_RETRYING)],
    ],
    ids=["nothing", "two", "a-wait-too", "a-wait", "a-failure", "a-retry"],
)
def test_only_one_clean_end_opens_it(facts: list[Fact]) -> None:
    assert closed_by(replace(OPEN, facts=facts)) == "no clean end"


def test_an_end_the_body_was_not_advanced_on_does_not() -> None:
    assert closed_by(replace(OPEN, ahead=False)) == "no clean end"


OTHER = replace(CALL, id="s3")
PLANS = {
    "nothing": Plan(),
    "queued": made(starts=[], rows=[Dispatched(Row.QUEUE, "s2")], sends=[Send(Kind.STEP, "s2", "default")]),
    "two-steps": made(starts=[CALL, OTHER]),
    "recovered": made(decisions=made().decisions[1:], rows=[Dispatched(Row.OWNED_RECOVERY, "s2")]),
    "another-decision-first": made(decisions=[Decision(E.PATCH_RECORDED, "p1"), *made().decisions]),
    "another-decision-after": made(decisions=[*made().decisions, Decision(E.ATTR_SET, "a1")]),
    "a-wait": made(decisions=[*made().decisions, Decision(E.WAIT_CREATED, "w1", due_in=5)]),
    "a-hook": made(decisions=[*made().decisions, Decision(E.HOOK_CREATED, "h1")]),
    "a-disposal": made(decisions=[Decision(E.HOOK_DISPOSED, "h1"), *made().decisions]),
    "of-another-step": made(decisions=[decision._replace(id="s3") for decision in made().decisions]),
    "a-message": made(sends=[Send(Kind.RUN, "timer", "default", due_in=5)]),
    "a-withdrawal": made(withdraws=["timer"]),
    "a-hand-over": made(facts=[END._replace(type=E.STEP_RETRYING, id="s9")]),
    "a-child": made(children=[ChildStart("wrun_x", "s2", {}, b"", "default", b"")]),
    "more-to-come": made(partial=True),
    "an-end": made(ends_run=True),
    "another-row": made(rows=[Dispatched(Row.INLINE, "s2"), Dispatched(Row.BACKSTOP, "s1")]),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_only_the_creation_and_start_of_one_new_step_open_it(plan: Plan) -> None:
    assert closed_by(replace(OPEN, made=plan)) == "not one new step"


@pytest.mark.parametrize("open", [[], ["s1", "s2"], ["s2", "w1"], ["h1", "s2"], ["s3"]])
def test_any_other_call_of_the_body_closes_it(open: list[str]) -> None:
    assert closed_by(replace(OPEN, open=open)) == "something else is open"


def test_the_step_that_has_just_ended_does_not_close_it() -> None:
    assert closed_by(replace(OPEN, running=["s1"])) == ""
    assert closed_by(replace(OPEN, running=[])) == ""
