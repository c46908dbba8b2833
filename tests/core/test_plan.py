"""From a quiet body to one transition: what is written, sent, withdrawn and executed, in which order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from worker.core.calls import (
    AttributesCall,
    Call,
    Cancelled,
    ChildCall,
    ContinuedAsNew,
    DisposeCall,
    HookCall,
    PatchCall,
    Raised,
    Returned,
    StepCall,
    WaitCall,
)
from worker.core.dispatch import Here, Row
from worker.core.plan import MAX_BYTES, MAX_CALLS, Plan, Scene, plan, plan_steps
from worker.core.records import (
    CANCELLED,
    USER_ERROR,
    AttributesSet,
    Failed,
    HookConflict,
    HookCreated,
    PatchRecorded,
    StepCreated,
    StepRetrying,
    unpack,
)
from world_redis.events import EventType as E
from world_redis.ids import child_run_id, partition_of
from world_redis.messages import Held, Kind, RunContext, unpack_run_message, unpack_step_message
from world_redis.transition import Epoch, OpenStep, Table

RUN_ID = "wrun_01JEXAMP0E0000000000000007"
CREATED_AT = 1_764_000_000_000
NOW = CREATED_AT + 5_000
SEED = bytes(range(16))
CONTEXT = RunContext("renew", 3, 6, "billing", CREATED_AT, "wrun_root", deployment="d", traceparent="t")
EPOCH = Epoch(7, b"marktext")


def scene(fresh: Sequence[Call] = (), **given: Any) -> Scene:
    """A quiet body of a started run that may run three steps here; `given` is what differs."""
    given.setdefault("open", {call.id: call for call in fresh})
    plain = Scene(
        run_id=RUN_ID,
        context=CONTEXT,
        started=True,
        fresh=fresh,
        open={},
        dropped=(),
        outcome=None,
        here=Here({"m1": 2}, set()),
        inline_free=3,
        may_run=lambda step, queue: True,
        conflicts={},
        waits={},
        rearm=False,
        timer_armed=False,
        deadline_fired=False,
        table=None,
        attributes={},
        now=NOW,
        entropy=lambda size: SEED,
    )
    return replace(plain, **given)


def step(number: int, **given: Any) -> StepCall:
    data = given.pop("input", b"in")
    return StepCall(f"s{number}", "charge", data, given.pop("queue", ""), given, False)


def child(number: int, **given: Any) -> ChildCall:
    plain: dict[str, Any] = {
        "queue": "",
        "timeout": 0,
        "attributes": {},
        "detach": False,
        "resolved": False,
    }
    id = f"s{number}"
    return ChildCall(id, "other", 2, child_run_id(RUN_ID, id), b"in", **plain | given)


def wait(number: int, due_in: int = 1_000, due_at: int = 0) -> WaitCall:
    return WaitCall(f"w{number}", due_in, due_at)


def hook(number: int, token: str = "token") -> HookCall:
    return HookCall(f"h{number}", token, False, "Approval", b"meta")


def open_step(number: int, state: str, mode: str = "", **given: Any) -> OpenStep:
    plain = OpenStep(
        id=f"s{number}",
        state=state,
        mode=mode,
        owner=None,
        owner_live=False,
        lease_left=0,
        due=0,
        has_message=False,
        epoch=EPOCH,
        starts=1,
        errors=0,
        crashes=0,
        first_started=CREATED_AT,
    )
    return plain._replace(**given)


def recorded(*steps: OpenStep, **given: Any) -> Scene:
    """A scene whose body waits for these recorded steps."""
    calls: dict[str, Call] = {each.id: step(int(each.id[1:])) for each in steps}
    return scene(open=calls, table=Table(steps, (), (), True), **given)


def written(made: Plan) -> list[tuple[E, str]]:
    return [(decision.type, decision.id) for decision in made.decisions]


def sent(made: Plan) -> list[tuple[Kind, str, int, int]]:
    return [(send.kind, send.key, send.due_in, send.due_at) for send in made.sends]


# --- order ----------------------------------------------------------------------------------------


def test_a_quiet_body_without_news_writes_nothing() -> None:
    assert plan(scene()).empty


def test_calls_are_recorded_in_the_order_they_were_issued() -> None:
    calls: list[Call] = [
        step(1),
        wait(1),
        hook(1),
        child(2),
        AttributesCall("a1", {"k": "v", "old": None}),
        PatchCall("p1", "faster"),
        DisposeCall("h1"),
        step(3),
    ]
    assert written(plan(scene(calls))) == [
        (E.STEP_CREATED, "s1"),
        (E.STEP_STARTED, "s1"),
        (E.WAIT_CREATED, "w1"),
        (E.HOOK_CREATED, "h1"),
        (E.STEP_CREATED, "s2"),
        (E.ATTR_SET, "a1"),
        (E.PATCH_RECORDED, "p1"),
        (E.HOOK_DISPOSED, "h1"),
        (E.STEP_CREATED, "s3"),
        (E.STEP_STARTED, "s3"),
    ]


def test_what_is_recorded_of_each_call_can_be_read_back() -> None:
    calls: list[Call] = [
        step(1, timeout=5),
        hook(1),
        AttributesCall("a1", {"k": None}),
        PatchCall("p1", "faster"),
    ]
    made = plan(scene(calls, inline_free=0))
    data = {decision.id: decision.data for decision in made.decisions}
    assert unpack(StepCreated, data["s1"]) == StepCreated("charge", b"in", "", {"timeout": 5})
    assert unpack(HookCreated, data["h1"]) == HookCreated("token", b"meta", "Approval")
    assert unpack(AttributesSet, data["a1"]) == AttributesSet({"k": None})
    assert unpack(PatchRecorded, data["p1"]) == PatchRecorded("faster")


def test_the_first_pass_starts_the_run_before_everything_else() -> None:
    made = plan(scene([step(1)], started=False))
    assert written(made)[0] == (E.RUN_STARTED, "")
    assert sent(made) == []


def test_a_run_with_a_time_limit_gets_its_deadline_once() -> None:
    limited = replace(CONTEXT, timeout=60_000)
    first = plan(scene(started=False, context=limited))
    assert sent(first) == [(Kind.RUN, "deadline", 0, CREATED_AT + 60_000)]
    assert sent(plan(scene(context=limited))) == []


def test_a_deadline_handed_out_before_its_time_is_armed_again() -> None:
    limited = replace(CONTEXT, timeout=60_000)
    made = plan(scene(context=limited, deadline_fired=True))
    assert sent(made) == [(Kind.RUN, "deadline", 0, CREATED_AT + 60_000)]


# --- a wide pass ----------------------------------------------------------------------------------


def test_a_wide_pass_is_cut_in_call_order_and_says_so() -> None:
    calls = [step(number) for number in range(1, MAX_CALLS + 2)]
    first = plan(scene(calls, outcome=Returned(b"out")))
    assert first.partial and not first.ends_run
    assert [id for type, id in written(first) if type is E.STEP_CREATED] == [
        call.id for call in calls[:MAX_CALLS]
    ]
    assert len(first.decisions) <= 200
    last = plan(scene(calls[MAX_CALLS:], outcome=Returned(b"out")))
    assert not last.partial and last.ends_run
    assert written(last)[-1] == (E.RUN_COMPLETED, "")


def test_as_many_calls_as_fit_are_not_cut() -> None:
    assert not plan(scene([wait(number) for number in range(1, MAX_CALLS + 1)])).partial


# --- new steps ------------------------------------------------------------------------------------


def test_steps_run_here_while_slots_are_free_and_the_rest_ride_the_queue() -> None:
    calls = [step(1), step(2), step(3, queue="gpu")]
    made = plan(scene(calls, inline_free=1))
    assert made.rows == [(Row.INLINE, "s1"), (Row.QUEUE, "s2"), (Row.QUEUE, "s3")]
    assert made.starts == calls[:1]
    assert [(send.key, send.queue) for send in made.sends] == [("s2", "billing"), ("s3", "gpu")]
    message = unpack_step_message(made.sends[0].payload)
    assert (message.context, message.name, message.input) == (CONTEXT, "charge", b"in")


def test_a_step_that_may_not_run_here_takes_no_slot_of_another() -> None:
    calls = [step(1, queue="gpu"), step(2)]
    made = plan(scene(calls, inline_free=1, may_run=lambda name, queue: queue != "gpu"))
    assert made.rows == [(Row.QUEUE, "s1"), (Row.INLINE, "s2")]


def test_recovered_steps_take_the_slots_before_new_ones() -> None:
    old = open_step(1, "running", "inline", owner=Held("m1", 1))
    made = plan(replace(recorded(old, inline_free=1), fresh=[step(2)]))
    assert made.rows == [(Row.OWNED_RECOVERY, "s1"), (Row.QUEUE, "s2")]


def test_a_transition_takes_no_more_arguments_than_a_server_takes_in_quickly() -> None:
    large = [step(number, input=b"x" * (MAX_BYTES // 2)) for number in range(1, 6)]
    made = plan(scene(large, inline_free=0))
    assert [d.id for d in made.decisions if d.type is E.STEP_CREATED] == ["s1", "s2"]
    assert made.partial
    alone = plan(scene([step(1, input=b"x" * (MAX_BYTES + 1)), step(2)], inline_free=0))
    assert [d.id for d in alone.decisions if d.type is E.STEP_CREATED] == ["s1"], "too large goes alone"
    assert alone.partial


# --- recorded steps -------------------------------------------------------------------------------


def test_a_restart_keeps_the_steps_history_and_records_only_the_start() -> None:
    old = open_step(1, "running", "inline", owner=Held("m1", 1), errors=2, first_started=CREATED_AT + 9)
    made = plan(recorded(old))
    assert written(made) == [(E.STEP_STARTED, "s1")]
    assert made.decisions[0].mode == "inline"
    assert [call.id for call in made.starts] == ["s1"]
    assert made.sends == [] and made.facts == []


@pytest.mark.parametrize("why", ["poison", "no slot", "may not run here"])
def test_a_hand_over_records_the_crash_and_queues_the_step_by_one_verdict(why: str) -> None:
    old = open_step(1, "running", "inline", owner=Held("m1", 1), crashes=2 if why == "poison" else 0)
    given: dict[str, Any] = {"poison": {}, "no slot": {"inline_free": 0}}.get(
        why, {"may_run": lambda step, queue: False}
    )
    made = plan(recorded(old, **given))
    assert made.rows == [(Row.OWNED_RECOVERY, "s1")]
    assert made.starts == [] and made.decisions == [] and made.sends == []
    (fact,) = made.facts
    assert (fact.type, fact.id, fact.epoch, fact.cause) == (E.STEP_RETRYING, "s1", EPOCH, "crash")
    assert unpack(StepRetrying, fact.data) == StepRetrying(b"", 0, False)
    assert fact.send is not None and (fact.send.kind, fact.send.key) == (Kind.STEP, "s1")


def test_a_retry_without_a_message_is_sent_for_the_time_in_its_record() -> None:
    made = plan(recorded(open_step(1, "retrying", due=NOW + 700)))
    assert sent(made) == [(Kind.STEP, "s1", 0, NOW + 700)]


@pytest.mark.parametrize(
    "healthy",
    [
        open_step(1, "created", has_message=True),
        open_step(1, "retrying", has_message=True, due=NOW + 700),
        open_step(1, "withdrawn"),
        open_step(1, "running", "inline", owner=Held("m2", 1), owner_live=True),
        open_step(1, "running", "queue", owner=Held("m2", 1), owner_live=True),
        open_step(1, "running", "external"),
        open_step(1, "running", "child"),
    ],
    ids=lambda each: f"{each.state}-{each.mode}",
)
def test_passes_over_healthy_steps_write_and_send_nothing(healthy: OpenStep) -> None:
    for _ in range(3):
        made = plan(recorded(healthy))
        assert made.empty and len(made.rows) == 1


def test_only_steps_the_body_waits_for_are_dispatched() -> None:
    assert plan(replace(recorded(open_step(1, "created")), open={})).rows == []


def test_without_the_stores_table_nothing_recorded_is_dispatched() -> None:
    assert plan(scene(open={"s1": step(1)})).empty


# --- timers ---------------------------------------------------------------------------------------


def test_every_new_wait_offers_its_due_time_to_the_one_timer() -> None:
    made = plan(scene([wait(1, due_in=900), wait(2, due_at=NOW + 50), wait(3, due_in=400)]))
    assert sent(made) == [(Kind.RUN, "timer", 400, 0), (Kind.RUN, "timer", 0, NOW + 50)], "two, not three"
    assert made.decisions[0].due_in == 900 and made.decisions[1].due_at == NOW + 50


def test_a_timer_that_was_handed_out_is_armed_again_at_the_earliest_wait() -> None:
    waits = {"w1": NOW + 900, "w2": NOW + 300}
    assert sent(plan(scene(waits=waits, rearm=True))) == [(Kind.RUN, "timer", 0, NOW + 300)]
    assert plan(scene(waits=waits, timer_armed=True)).empty


def test_a_wait_nobody_listens_to_is_withdrawn_and_does_not_count_for_the_timer() -> None:
    waits = {"w1": NOW + 300, "w2": NOW + 900}
    made = plan(scene(waits=waits, dropped=["w1"], rearm=True, timer_armed=True))
    assert made.withdraws == ["w1"]
    assert sent(made) == [(Kind.RUN, "timer", 0, NOW + 900)]
    assert made.decisions == []


def test_the_timer_is_withdrawn_with_the_last_wait() -> None:
    made = plan(scene(waits={"w1": NOW + 300}, dropped=["w1"], timer_armed=True))
    assert made.withdraws == ["w1", "timer"] and made.sends == []


def test_no_timer_is_withdrawn_where_none_is_armed() -> None:
    assert plan(scene(timer_armed=False)).withdraws == []


# --- what nobody listens to -----------------------------------------------------------------------


def test_a_step_nobody_awaits_is_withdrawn_unless_it_runs_here() -> None:
    waiting = plan(scene(open={"s1": step(1)}, dropped=["s1"]))
    assert waiting.withdraws == ["s1"] and waiting.decisions == []
    running = plan(scene(open={"s1": step(1)}, dropped=["s1"], here=Here({"m1": 2}, {"s1"})))
    assert running.empty


def test_what_is_created_now_is_not_withdrawn_in_the_same_breath() -> None:
    assert plan(scene([step(1)], dropped=["s1"])).withdraws == []


# --- hooks and children ---------------------------------------------------------------------------


def test_a_hook_whose_token_is_taken_is_recorded_as_a_conflict() -> None:
    made = plan(scene([hook(1, "taken")], conflicts={"h1": "wrun_other"}))
    assert written(made) == [(E.HOOK_CONFLICT, "h1")]
    assert unpack(HookConflict, made.decisions[0].data) == HookConflict("taken", "wrun_other")


def test_a_child_is_born_in_its_parents_transition() -> None:
    made = plan(scene([child(1, detach=True, timeout=9_000)]))
    (decision,) = made.decisions
    assert (decision.mode, decision.detach) == ("child", True)
    record = unpack(StepCreated, decision.data)
    assert (record.name, record.version, record.child_run_id) == ("other", 2, child_run_id(RUN_ID, "s1"))
    (start,) = made.children
    assert (start.run_id, start.step, start.queue) == (record.child_run_id, "s1", "billing")
    assert partition_of(start.run_id) == partition_of(RUN_ID)
    message = unpack_run_message(start.payload)
    assert message.seed == SEED and message.input == b"in"
    context = message.context
    assert (context.parent_run_id, context.parent_step) == (RUN_ID, "s1")
    assert (context.root_run_id, context.deployment, context.traceparent) == ("wrun_root", "d", "t")
    assert (context.created_at, context.timeout, context.workflow) == (NOW, 9_000, "other")
    assert start.fields["parent"] == RUN_ID and start.fields["timeout"] == 9_000
    assert "attributes" not in start.fields


def test_a_childs_attributes_are_part_of_its_record() -> None:
    (start,) = plan(scene([child(1, attributes={"team": "a"})])).children
    assert start.fields["attributes"] == '{"team":"a"}'


def test_a_child_takes_no_slot() -> None:
    made = plan(scene([child(1), step(2)], inline_free=1))
    assert made.rows == [(Row.INLINE, "s2")]


# --- the end --------------------------------------------------------------------------------------


def test_a_result_ends_the_run_last() -> None:
    made = plan(scene([AttributesCall("a1", {"k": "v"})], outcome=Returned(b"out")))
    assert written(made) == [(E.ATTR_SET, "a1"), (E.RUN_COMPLETED, "")]
    assert made.decisions[-1].data == b"out" and made.ends_run


def test_an_error_fails_the_run_with_its_code() -> None:
    made = plan(scene(outcome=Raised(b"why", USER_ERROR)))
    assert written(made) == [(E.RUN_FAILED, "")]
    assert unpack(Failed, made.decisions[0].data) == Failed(USER_ERROR, b"why")


def test_a_cancelled_body_cancels_the_run() -> None:
    made = plan(scene(outcome=Cancelled("asked")))
    assert written(made) == [(E.RUN_CANCELLED, "")]
    assert unpack(Failed, made.decisions[0].data).code == CANCELLED


def test_an_ended_run_arms_and_withdraws_no_timer() -> None:
    made = plan(scene(outcome=Returned(b""), waits={"w1": NOW}, rearm=True, timer_armed=True))
    assert made.sends == [] and "timer" not in made.withdraws


def test_continue_as_new_hands_over_in_the_transition_that_ends_the_run() -> None:
    context = replace(CONTEXT, parent_run_id="wrun_parent", parent_step="s4", timeout=60_000)
    made = plan(scene(context=context, outcome=ContinuedAsNew(b"next")))
    assert written(made) == [(E.RUN_COMPLETED, "")] and made.ends_run
    (start,) = made.children
    assert (start.run_id, start.step) == (child_run_id(RUN_ID, "next"), "")
    assert start.fields["continued_from"] == RUN_ID
    message = unpack_run_message(start.payload)
    assert message.input == b"next" and message.seed == SEED
    assert message.context == replace(context, created_at=NOW)
    assert "attributes" not in start.fields


def test_a_run_that_goes_on_as_new_has_the_attributes_this_one_ends_with() -> None:
    outcome = ContinuedAsNew(b"next", {"stage": "two", "draft": None, "gone": None, "new": "n"})
    given = {"team": "billing", "stage": "one", "draft": "yes"}
    (start,) = plan(scene(attributes=given, outcome=outcome)).children
    assert orjson.loads(str(start.fields["attributes"])) == {"team": "billing", "stage": "two", "new": "n"}


# --- from step to step ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, MAX_CALLS, MAX_CALLS + 1, 2 * MAX_CALLS + 7])
@pytest.mark.parametrize("free", [0, 1, 3])
@pytest.mark.parametrize("served", [(), ("billing",), ("billing", "gpu")])
def test_a_pass_of_new_steps_alone_is_planned_as_any_other(
    count: int, free: int, served: Sequence[str]
) -> None:
    calls = [
        step(number, queue="gpu" if number % 3 == 0 else "", input=b"in" * number)
        for number in range(1, count + 1)
    ]

    def may_run(name: str, queue: str) -> bool:
        return queue in served

    whole = plan(scene(calls, inline_free=free, may_run=may_run))
    assert plan_steps(CONTEXT, calls, NOW, inline_free=free, may_run=may_run) == whole
    assert whole.partial == (count > MAX_CALLS)


def test_large_arguments_are_cut_there_too() -> None:
    calls = [step(number, input=b"x" * (MAX_BYTES // 2)) for number in range(1, 5)]
    made = plan_steps(CONTEXT, calls, NOW, inline_free=3, may_run=lambda name, queue: True)
    assert made == plan(scene(calls))
    assert made.partial
