"""Deferred step completion: code that runs ahead of its claim, with the order of everything forced.

`a` ends; its end and the start of `b` ride one transition, which the test holds back on its way there or on
its way back, while `b` runs already, ends, or something else happens.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine import app, early, kit, test_crashes
from tests.engine.early import ON, Doings, Scene, absorbed, count, some_turns, until, wait_for
from tests.engine.kit import LEASE, Stage
from tests.engine.plays import PLAYS, once_each
from tests.lua.proxy import Proxy
from worker import Client, WorkflowDefinition
from worker.runtime import leaving
from worker.runtime.host import Limits
from worker.runtime.worker import Worker
from worker.sdk.errors import InternalError
from worker.settings import Settings
from world_redis.events import EventType

OVER = int(LEASE * 1000) + 1  # ms
A_ALONE = ["run_created", "run_started", "step_created s1", "step_started s1"]
AND_B = ["step_completed s1", "step_created s2", "step_started s2"]


@pytest.fixture(autouse=True)
def did() -> Iterator[Doings]:
    with early.doings() as doings:
        yield doings


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    async with Stage(redis_url, early.wf) as ready:
        yield ready


# --- what it is -----------------------------------------------------------------------------------


async def test_a_steps_code_starts_before_the_end_of_the_step_before_is_recorded(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row)
    await wait_for("b", did.b_begins)
    assert await scene.shown() == A_ALONE
    confirmed = count(scene.process, "confirmed")
    did.b_may_end.set()
    assert await scene.finish() == "completed"
    assert await scene.result() == 11
    assert did.began == ["a", "b", "c"]
    assert count(scene.process, "confirmed") == confirmed + 2


@pytest.mark.skipif(kit.DEFERRED, reason="it is switched on for the whole run")
async def test_switched_off_no_step_starts_before_its_claim(stage: Stage, did: Doings) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, limits=Limits(strict=True))
    before = count(scene.process, "confirmed")
    await some_turns(stage)
    assert did.began == ["a"]
    did.b_may_end.set()
    assert await scene.finish() == "completed"
    assert count(scene.process, "confirmed") == before


@pytest.mark.parametrize(
    "workflow",
    [early.with_an_open_hook, early.with_an_open_timer, early.beside_another_step],
    ids=["hook", "timer", "step"],
)
async def test_while_something_else_is_open_no_step_starts_before_its_claim(
    stage: Stage, did: Doings, workflow: WorkflowDefinition[..., Any]
) -> None:
    scene = await Scene.begin(stage, workflow)
    await some_turns(stage)
    assert Counter(did.began)["b"] == (1 if workflow is early.beside_another_step else 0)
    did.b_may_end.set()
    assert await scene.finish() == "completed"


async def test_without_inline_ownership_no_step_starts_before_its_claim(stage: Stage, did: Doings) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, limits=replace(ON, inline_ownership=False))
    await some_turns(stage)
    assert did.began == ["a"]
    did.b_may_end.set()
    assert await scene.finish() == "completed"


async def test_under_a_later_delivery_no_step_starts_before_its_claim(stage: Stage, did: Doings) -> None:
    run_id = await stage.start(early.three_in_a_row)
    dead = stage.process(cut=kit.Cut(2, answered=True), limits=ON)
    await dead.work(lambda: stage.finished(run_id))
    await stage.clock.forward(OVER)
    heir = stage.process(limits=ON)
    scene = Scene(stage, heir, run_id, early.Held(heir, answered=False, nth=2))
    await scene.work()
    await some_turns(stage)
    assert "b" not in did.began
    did.b_may_end.set()
    assert await scene.finish() == "completed"


async def test_a_worker_killed_before_its_claim_is_written_has_run_the_next_step_on_a_result_nobody_recorded(
    stage: Stage, did: Doings
) -> None:
    """What it costs."""
    scene = await Scene.begin(stage, early.three_in_a_row, once=True)
    await wait_for("b", did.b_begins)
    await scene.process.die()
    assert await scene.shown() == A_ALONE
    await stage.clock.forward(OVER)
    did.b_may_end.set()
    heir = stage.process(limits=ON)
    await heir.work(scene.over)
    await heir.leave()
    assert did.began == ["a", "b", "a", "b", "c"]
    assert await scene.result() == 21  # b began with 1 first, then with 2


async def test_a_step_still_costs_one_round_trip(redis_url: str) -> None:
    async with Stage(redis_url, app.wf) as stage:
        process = stage.process(limits=ON)
        run_id = await stage.start(app.many, 50)
        before = count(process, "confirmed")
        await process.work(lambda: stage.finished(run_id))
        await process.leave()
        assert Counter(process.ports.calls)["append"] == 1 + 50
        assert count(process, "confirmed") == before + 49


async def test_the_setting_reaches_the_runs_of_a_worker(redis_url: str, namespace: str) -> None:
    settings = Settings.load(redis_url=redis_url, namespace=namespace, async_step_completed=True)
    (row,) = [row for row in settings.shown() if row.variable == "WORKFLOW_ASYNC_STEP_COMPLETED"]
    assert row.value == "1"
    worker = Worker(app.wf, settings)
    job = asyncio.create_task(worker.run())
    async with Client(redis_url, settings=settings) as client:
        assert await (await client.start(app.many, 5)).return_value(timeout=10) == 5
    worker.drain()
    await job
    name = "workflow_deferred_completions_total"
    assert worker.telemetry.registry.get_sample_value(name, {"outcome": "confirmed"}) == 4


# --- one uncommitted transition -------------------------------------------------------------------


@pytest.mark.parametrize("answered", [False, True], ids=["sent", "answered"])
async def test_what_ends_before_its_claim_is_there_is_neither_recorded_nor_shown_to_the_body(
    stage: Stage, did: Doings, answered: bool
) -> None:
    scene = await Scene.begin(stage, early.raises_on_the_first_draw, answered=answered)
    did.b_may_end.set()
    await until("b is over", lambda: "b" in did.over)
    await some_turns(stage)
    assert did.seen == []
    assert Counter(scene.process.ports.calls)["append"] == 2
    assert await scene.shown() == (A_ALONE + AND_B if answered else A_ALONE)
    assert not scene.process.intake.empty
    assert await scene.finish() == "failed"
    assert await scene.shown() == [*A_ALONE, *AND_B, "step_completed s2", "run_failed"]


async def test_a_drain_waits_for_the_claim_then_records_the_end_and_gives_the_rest_back(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, once=True)
    await wait_for("b", did.b_begins)
    scene.process.host.draining = True
    scene.process.intake.drain()
    did.b_may_end.set()
    await until("b is over", lambda: "b" in did.over)
    await some_turns(stage)
    assert await scene.shown() == A_ALONE
    assert (
        Counter(scene.process.ports.calls)["append"] == 2 and "message_defer" not in scene.process.ports.calls
    )
    scene.held.let_go()
    await scene.process.rest()
    assert await scene.shown() == [*A_ALONE, *AND_B, "step_completed s2"]
    assert "message_defer" in scene.process.ports.calls
    heir = stage.process(limits=ON)
    await heir.work(scene.over)
    await heir.leave()
    assert await scene.finish() == "completed"
    assert did.began == ["a", "b", "c"]


async def test_a_drain_that_takes_too_long_interrupts_the_step_and_costs_no_attempt(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, once=True)
    await wait_for("b", did.b_begins)
    scene.process.host.draining = True
    scene.process.intake.drain()
    scene.process.intake.interrupt()
    await until("b is over", lambda: "b" in did.over)
    scene.held.let_go()
    await scene.process.rest()
    assert (await scene.shown())[-1] == "step_retrying s2"
    did.b_may_end.set()
    heir = stage.process(limits=ON)
    await heir.work(scene.over)
    await heir.leave()
    assert await scene.finish() == "completed"


async def test_the_guard_of_messages_knows_the_step_that_is_ahead_of_its_claim(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row)
    await wait_for("b", did.b_begins)
    with pytest.raises(InternalError, match="let go while s2 run"):
        await scene.process.intake._sessions[scene.run_id]._leaving.give_back()
    did.b_may_end.set()
    assert await scene.finish() == "completed"


async def test_a_lost_carrier_is_acted_on_after_the_answer_not_before(stage: Stage, did: Doings) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, answered=True)
    await wait_for("b", did.b_begins)
    owner = await held_message(stage)
    scene.process.intake.signal(owner, 1, "superseded")
    await some_turns(stage)
    assert "b" not in did.over and "message_defer" not in scene.process.ports.calls
    scene.held.let_go()
    await until("b is stopped", lambda: "b" in did.over)
    did.b_may_end.set()
    assert await scene.finish() == "completed"
    once_each(await stage.events(scene.run_id))
    assert await scene.result() == 11


async def held_message(stage: Stage) -> str:
    """The one message in flight."""
    flight = stage.world.keys.queue(0, "default")[2]
    (message,) = await stage.world.command("ZRANGE", flight, 0, -1)
    return bytes(message).decode()


async def test_a_connection_cut_after_the_claim_is_resent_and_confirmed(
    redis_url: str, tmp_path: Path, did: Doings
) -> None:
    async with Proxy(redis_url, tmp_path) as proxy, Stage(proxy.url, early.wf) as stage:
        scene = await Scene.begin(stage, early.three_in_a_row)
        await wait_for("b", did.b_begins)
        proxy.lose_next_answer()
        did.b_may_end.set()
        confirmed = count(scene.process, "confirmed")
        assert await scene.finish() == "completed"
        assert proxy.lost == 1
        assert did.began == ["a", "b", "c"]
        assert count(scene.process, "confirmed") == confirmed + 2


# --- refused --------------------------------------------------------------------------------------


async def elsewhere(stage: Stage, run_id: str) -> None:
    """The message lapses, and another process brings the run home; `b` does not stand there."""
    await stage.clock.forward(OVER)
    early.now.b_may_end.set()
    heir = stage.process(limits=ON)
    await heir.work(lambda: stage.finished(run_id))
    await heir.leave()
    early.now.b_may_end.clear()
    early.now.b_begins.clear()


@pytest.mark.parametrize("ended", [False, True], ids=["runs", "has-ended"])
async def test_a_cancel_before_the_claim_detaches_the_step_and_its_id_goes_to_another_one(
    stage: Stage, did: Doings, ended: bool
) -> None:
    scene = await Scene.begin(stage, early.tidies_up, meddle=early.ask_to_cancel)
    await wait_for("b", did.b_begins)
    detached = count(scene.process, "detached")
    if ended:
        did.b_may_end.set()
        await until("b is over", lambda: "b" in did.over)
    assert await scene.finish() == "cancelled"
    assert count(scene.process, "detached") == detached + 1
    assert did.began == ["a", "b", "tidy"] and did.over == did.began
    assert await early.data_of(stage, scene.run_id, EventType.STEP_COMPLETED, "s2") == b'"tidied"'
    assert "run_failed" not in await scene.shown()
    # The first pass, the refused one, tidy's start, and its end: nobody has tried to record that of b.
    assert scene.process.ports.calls.count("append") == 4


async def test_code_that_cannot_be_stopped_keeps_slot_and_flight_and_nothing_starts_beside_it(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.tidies_up_after_a_thread, meddle=early.ask_to_cancel)
    await until("b", lambda: "b" in did.began)
    host, key, before = scene.process.host, (scene.run_id, "s2"), absorbed(scene.process)
    scene.held.let_go()
    await until("it is detached", lambda: key in host.detached)
    await until("the message of the new one is absorbed", lambda: absorbed(scene.process) > before)
    await some_turns(stage)
    assert host.slots.taken == 1 and key in host.flights
    assert did.began == ["a", "b"]
    did.thread_may_end.set()
    assert await scene.finish() == "cancelled"
    assert did.began == ["a", "b", "tidy"] and did.over == did.began
    assert await early.data_of(stage, scene.run_id, EventType.STEP_COMPLETED, "s2") == b'"tidied"'


async def test_a_run_terminated_before_the_claim_records_nothing_of_the_step(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, meddle=early.terminate)
    await wait_for("b", did.b_begins)
    assert await scene.finish() == "cancelled"
    assert did.began == did.over == ["a", "b"]
    assert not [line for line in await scene.shown() if "s2" in line]


@pytest.mark.parametrize("ended", [False, True], ids=["runs", "has-ended"])
async def test_a_step_begun_on_a_result_that_another_worker_drew_again_counts_for_nothing(
    stage: Stage, did: Doings, ended: bool
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, meddle=elsewhere)
    await wait_for("b", did.b_begins)
    detached = count(scene.process, "detached")
    if ended:
        did.b_may_end.set()
        await until("b is over", lambda: did.over.count("b") == 2)
    assert await scene.finish() == "completed"
    assert await scene.result() == 21
    once_each(await stage.events(scene.run_id))
    assert count(scene.process, "detached") == detached + 1
    assert did.over.count("b") == 2


@pytest.mark.parametrize(
    "workflow", [early.raises_on_the_first_draw, early.raises_at_once], ids=["on-b", "on-a"]
)
async def test_a_body_that_would_raise_on_a_refused_result_is_replayed_and_never_fails_its_run(
    stage: Stage, did: Doings, workflow: WorkflowDefinition[..., Any]
) -> None:
    """The worker that drew 1 would fail the run; its write is refused, and the log says 2."""
    scene = await Scene.begin(stage, workflow, meddle=elsewhere)
    did.b_may_end.set()
    await some_turns(stage)
    assert await scene.finish() == "completed"
    assert await scene.result() == 20
    assert "run_failed" not in await scene.shown()
    assert did.seen[-1] == (1 if workflow is early.raises_at_once else 20)


async def test_a_step_that_raises_ahead_of_a_refused_claim_fails_nothing(stage: Stage, did: Doings) -> None:
    scene = await Scene.begin(stage, early.catches_a_failure, meddle=elsewhere)
    await wait_for("b", did.b_begins)
    assert await scene.finish() == "completed"
    assert await scene.result() == "draw 2"


async def test_an_answer_later_than_the_lease_detaches_and_the_step_runs_again_under_a_new_claim(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, answered=True)
    await wait_for("b", did.b_begins)
    detached = count(scene.process, "detached")
    await stage.clock.forward(OVER)
    scene.held.let_go()
    await until("b is stopped", lambda: "b" in did.over)
    assert count(scene.process, "detached") == detached + 1
    did.b_may_end.set()
    assert await scene.finish() == "completed"
    assert did.began == ["a", "b", "b", "c"]
    once_each(await stage.events(scene.run_id))


async def test_a_claim_that_was_written_but_not_heard_of_is_not_started_beside_its_code(
    stage: Stage, did: Doings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker gives the run back although a thread of it runs on, and takes it again itself."""
    monkeypatch.setattr(leaving, "_STOP_WITHIN", 0.01)
    scene = await Scene.begin(stage, early.three_with_a_thread, answered=True)
    before = absorbed(scene.process)
    await until("b", lambda: "b" in did.began)
    await stage.clock.forward(OVER)
    scene.held.let_go()
    await until("it is detached", lambda: bool(scene.process.host.detached))
    await until("its message is absorbed", lambda: absorbed(scene.process) > before)
    await some_turns(stage)
    assert did.began == ["a", "b"]
    did.thread_may_end.set()
    assert await scene.finish() == "completed"
    assert did.began == ["a", "b", "b", "c"] and did.over == did.began
    assert await scene.result() == 11


async def test_a_claim_that_fails_on_its_way_detaches_and_says_so(
    stage: Stage, did: Doings, caplog: pytest.LogCaptureFixture
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row)
    await wait_for("b", did.b_begins)
    scene.held.error = RuntimeError("no way to the store")
    did.b_may_end.set()
    assert await scene.finish() == "completed"
    assert await scene.result() == 11
    (record,) = [record for record in caplog.records if record.message == "detached"]
    about = vars(record)
    assert record.levelname == "WARNING"
    assert (about["run_id"], about["step"], about["number"]) == (scene.run_id, "s2", 1)
    assert about["reason"] == "no answer" and about["message_id"]


async def test_a_claim_refused_before_the_code_has_begun_runs_none_of_it(stage: Stage, did: Doings) -> None:
    run_id = await stage.start(early.three_with_a_thread)
    process = stage.process(limits=ON)
    scene = Scene(stage, process, run_id, early.Held(process, answered=False))
    detached = count(process, "detached")
    scene.held.error = RuntimeError("no way to the store")
    scene.held.let_go()
    did.thread_may_end.set()
    await scene.work()
    assert await scene.finish() == "completed"
    assert count(process, "detached") == detached + 1
    assert did.began == ["a", "b", "c"]


# --- what its code sees and may do ----------------------------------------------------------------


async def test_fencing_tokens_never_run_backwards_though_the_workers_clock_is_ahead(
    stage: Stage, did: Doings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await stage.start(early.tidies_up)
    process = stage.process(limits=ON)
    ports = process.ports
    looks = itertools.count()
    monkeypatch.setattr(ports, "now", lambda: stage.clock.ms / 1000 + next(looks))  # a second at every look
    did.at_end_of_a = lambda: early.ask_to_cancel(stage, run_id)
    await process.work(lambda: stage.finished(run_id))
    await process.leave()
    assert did.began == ["a", "b", "tidy"]  # and b without a claim
    assert did.tokens == sorted(set(did.tokens))


async def test_a_token_of_the_past_is_lower_than_what_another_worker_has_started_since(
    stage: Stage, did: Doings
) -> None:
    scene = await Scene.begin(stage, early.three_in_a_row, meddle=elsewhere)
    await wait_for("b", did.b_begins)
    assert await scene.finish() == "completed"
    assert did.began == ["a", "a", "b", "c", "b"]
    first, again, *there, late = did.tokens
    assert first < late < again < min(there)


@pytest.mark.parametrize(
    "workflow", [early.starts_a_run, early.starts_a_run_in_a_thread], ids=["task", "thread"]
)
@pytest.mark.parametrize("refused", [False, True], ids=["confirmed", "refused"])
async def test_a_run_started_by_a_step_ahead_of_its_claim_waits_for_it(
    redis_url: str, stage: Stage, did: Doings, workflow: WorkflowDefinition[..., Any], refused: bool
) -> None:
    settings = Settings.load(redis_url=redis_url, namespace=stage.world.keys.namespace)
    did.connect = lambda: Client(redis_url, settings=settings)
    meddle = early.ask_to_cancel if refused else None
    scene = await Scene.begin(stage, workflow, meddle=meddle)
    await until("b", lambda: "b" in did.began)
    async with did.client() as client:  # which takes as long as what b would do
        assert not (await client.list_runs(workflow="alone")).runs
        assert did.over == ["a"]
        assert await scene.finish() == ("cancelled" if refused else "completed")
        assert len((await client.list_runs(workflow="alone")).runs) == (0 if refused else 1)


# --- the rest of the engine with it ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["in_a_row", "survives", "goes_on_as_new"])
async def test_with_it_a_process_that_dies_or_sleeps_at_any_call_leaves_a_run_that_finishes(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    play = PLAYS[name]
    calls, expected = await test_crashes.undisturbed(redis_url, play)
    monkeypatch.setattr(kit, "DEFERRED", True)
    deferred_calls, deferred = await test_crashes.undisturbed(redis_url, play)
    assert (deferred_calls, deferred.log) == (calls, expected.log)
    for cut in test_crashes.every_cut(calls):
        with test_crashes.explained(cut):
            written = await test_crashes.with_deaths(redis_url, play, cut)
            assert (written.decided, written.result) == (expected.decided, expected.result)
    for cut in test_crashes.every_cut(calls, sleeps=True):
        with test_crashes.explained(cut):
            written = await test_crashes.with_a_sleeper(redis_url, play, cut)
            assert (written.decided, written.result) == (expected.decided, expected.result)
