"""What a run costs: round trips to the server, and bytes in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import orjson
import pytest

from tests.engine import app
from tests.engine.kit import Process, Stage
from worker.core.records import CancelRequested, HookReceived, pack
from worker.runtime.body import Body
from world_redis.events import Event, EventType
from world_redis.hooks import HookAddress, Hooks
from world_redis.runs import Runs

STEPS = 1000


@contextmanager
def noted(process: Process) -> Iterator[list[int]]:
    """For every step body that starts: how many scripts its process has called before."""
    seen: list[int] = []

    def look(what: str) -> None:
        seen.append(len(process.ports.calls))

    app.on_effect.append(look)
    yield seen
    app.on_effect.remove(look)


async def run_to_rest(process: Process) -> None:
    """Take and work until there is nothing more to do now."""
    while True:
        before = len(process.ports.calls)
        await process.intake.take()
        if process.intake.empty and len(process.ports.calls) == before + 1:
            return
        await process.rest()


async def test_starting_a_run_is_one_round_trip(stage: Stage) -> None:
    await stage.start(app.in_a_row)
    trips = stage.world.round_trips["run_start"]
    await stage.start(app.in_a_row)
    assert stage.world.round_trips["run_start"] == trips + 1
    assert set(stage.world.round_trips) == {"run_start"}


async def test_a_taken_run_reaches_its_first_body_in_one_round_trip(stage: Stage) -> None:
    process = stage.process()
    await stage.start(app.in_a_row)
    with noted(process) as calls:
        await run_to_rest(process)
    assert process.ports.calls[:2] == ["take", "append"]
    assert calls[0] == 2


async def test_each_further_inline_step_is_one_round_trip_at_step_2_and_at_step_1000(stage: Stage) -> None:
    process = stage.process()
    run_id = await stage.start(app.many, STEPS)
    with noted(process) as calls:
        await run_to_rest(process)
    assert await stage.finished(run_id)
    between = [after - before for before, after in pairwise(calls)]
    assert between[0] == 1 and between[-1] == 1
    assert set(between) == {1}
    # The end of the last step, the run's end and the settling ride one transition.
    assert Counter(process.ports.calls)["append"] == 1 + STEPS


async def test_from_step_to_step_no_event_is_learned_one_by_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Body.learn
    learned: list[EventType] = []

    def note(body: Body, events: Sequence[Event]) -> None:
        learned.extend(event.type for event in events)
        learn(body, events)

    monkeypatch.setattr(Body, "learn", note)
    run_id = await stage.start(app.many, STEPS)
    await run_to_rest(stage.process())
    assert await stage.finished(run_id)
    assert learned == [EventType.RUN_CREATED]


async def test_a_queued_step_is_two_round_trips_and_its_run_is_woken_with_one(stage: Stage) -> None:
    home, elsewhere = stage.process(), stage.process(queues=["other"])
    run_id = await stage.start(app.one_elsewhere)
    for process in (home, elsewhere, home):
        await run_to_rest(process)
    assert await stage.finished(run_id)
    assert [call for call in elsewhere.ports.calls if call != "take"] == ["step_claim", "append"]
    # Its first pass, then the wake, which tells the step's end: the run ends.
    assert [call for call in home.ports.calls if call != "take"] == ["append"] * 2


async def test_a_hook_resume_and_the_wake_of_its_live_run_are_one_each(stage: Stage) -> None:
    process = stage.process()
    run_id = await stage.start(app.two_words)
    await run_to_rest(process)
    table = (await stage.read(run_id)).table
    assert table is not None
    (hook,) = table.hooks
    nobody = HookAddress(run_id, "h9")
    await Hooks(stage.world).resume(nobody, "t", "r0", b"")  # the server has the script from here on
    stage.world.round_trips.clear()
    process.ports.calls.clear()
    record = pack(HookReceived(orjson.dumps({"word": "go"}), "r1"))
    await Hooks(stage.world).resume(HookAddress(run_id, hook.id), hook.token, "r1", record)
    assert stage.world.round_trips == {"hook_resume": 1}

    with noted(process) as calls:
        await run_to_rest(process)
    assert [call for call in process.ports.calls[: calls[0]] if call != "take"] == ["append"]


async def test_a_childs_end_and_a_cancel_request_are_one_for_the_run_they_wake(stage: Stage) -> None:
    process = stage.process()
    await stage.start(app.has_a_child)
    await run_to_rest(process)
    # Parent and child: create and start; the child's step, its end; then the parent's.
    assert Counter(process.ports.calls)["append"] == 1 + 2 + 1

    run_id = await stage.start(app.two_words)
    await run_to_rest(process)
    process.ports.calls.clear()
    await Runs(stage.world).cancel(run_id, pack(CancelRequested("enough")))
    await run_to_rest(process)
    assert await stage.finished(run_id)
    assert Counter(process.ports.calls)["append"] == 1


async def test_a_wake_of_a_resting_live_run_reads_nothing_again(stage: Stage) -> None:
    process = stage.process()
    run_id = await stage.start(app.two_words)
    await run_to_rest(process)
    process.ports.calls.clear()
    await stage.resume(run_id, "r1", pack(HookReceived(orjson.dumps({"word": "go"}), "r1")))
    await run_to_rest(process)
    assert "run_read" not in process.ports.calls


async def test_a_sleep_that_ends_is_one_take_and_one_transition_and_rings_nobody(stage: Stage) -> None:
    process = stage.process()
    run_id = await stage.start(app.naps)
    await run_to_rest(process)
    await stage.clock.forward_to_what_is_due()
    bell = stage.world.keys.bell(0, "default")
    await stage.world.command("DEL", bell)
    process.ports.calls.clear()
    with noted(process) as calls:
        await process.intake.take()
        await process.rest()
    assert await stage.finished(run_id)
    assert process.ports.calls[: calls[0]] == ["take", "append"]
    assert process.ports.calls[calls[0] :] == ["append"], "its last step, and its end"
    assert await stage.world.command("LLEN", bell) == 0, "nobody is sent for another take"


async def test_a_trivial_step_costs_at_most_300_bytes(stage: Stage) -> None:
    sizes = []
    for steps in (1, 1 + STEPS):
        run_id = await stage.start(app.many, steps)
        await run_to_rest(stage.process())
        assert await stage.finished(run_id)
        _, log, entities, _ = stage.world.keys.run(0, run_id)
        size = 0
        for key in (log, entities):
            size += await stage.world.command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0
        sizes.append(size)
    assert (sizes[1] - sizes[0]) / STEPS <= 300
