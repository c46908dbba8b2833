"""Deploys: draining workers, a second signal, versions side by side, and bodies kept or rebuilt."""

import signal
from typing import Any

import pytest

from tests.acceptance import app
from tests.acceptance.kit import Fleet, until
from tests.partition import read_partition
from worker import WorkflowDefinition
from world_redis.events import EventType
from world_redis.liveness import check


async def test_a_drained_worker_records_its_results_gives_its_messages_back_and_exits_0(
    fleet: Fleet,
) -> None:
    leaving = await fleet.worker()
    run = await fleet.start(app.held_then_marks)
    await fleet.effects.started("a")
    leaving.signal(signal.SIGTERM)
    await until("it drains", lambda: leaving.said("draining"))
    fleet.effects.open_gate("a")
    assert await leaving.exit_code() == 0
    assert len(await fleet.events(run, EventType.STEP_COMPLETED)) == 1
    assert await run.status() == "running"
    state = await read_partition(fleet.world, 0, logs=True)
    assert check(state) == []
    assert [m.state for m in state.messages.values() if m.kind == "run"] == ["r"], "not given back"

    await fleet.worker()
    assert await run.return_value(timeout=10) == ["a", "b", "c"]
    assert len(fleet.effects.starts("a")) == 1


async def test_a_step_that_outlasts_the_drain_is_interrupted_and_costs_no_attempt(fleet: Fleet) -> None:
    leaving = await fleet.worker(drain_seconds=0.2)
    run = await fleet.start(app.one_held_step)
    await fleet.effects.started("a")
    leaving.signal(signal.SIGTERM)
    assert await leaving.exit_code() == 0
    assert fleet.effects.all("a", "stopped")
    await fleet.worker()
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    (step,) = await run.steps()
    assert (step.errors, step.crashes) == (0, 0)


async def test_a_queued_step_is_recorded_by_a_draining_worker(fleet: Fleet) -> None:
    await fleet.worker()
    leaving = await fleet.worker(queues="side")
    run = await fleet.start(app.held_on_the_side)
    await fleet.effects.started("a")
    leaving.signal(signal.SIGTERM)
    await until("it drains", lambda: leaving.said("draining"))
    fleet.effects.open_gate("a")
    assert await leaving.exit_code() == 0
    assert await run.return_value(timeout=10) == "a"
    assert len(fleet.effects.starts("a")) == 1


async def test_an_idle_worker_drains_at_once(fleet: Fleet) -> None:
    worker = await fleet.worker()
    worker.signal(signal.SIGTERM)
    assert await worker.exit_code() == 0


async def test_a_second_signal_ends_the_worker_at_once_and_its_step_is_recovered(fleet: Fleet) -> None:
    leaving = await fleet.worker()
    run = await fleet.start(app.one_held_step)
    await fleet.effects.started("a")
    leaving.signal(signal.SIGTERM)
    await until("it drains", lambda: leaving.said("draining"))
    leaving.signal(signal.SIGTERM)
    assert await leaving.exit_code() == 130
    fleet.effects.open_gate("a")
    await fleet.worker()
    assert await run.return_value(timeout=10) == "a"
    assert len(fleet.effects.starts("a")) == 2


async def test_two_versions_of_a_workflow_live_side_by_side(fleet: Fleet) -> None:
    await fleet.worker()
    old = await fleet.start(app.versioned_1.with_options(version=1))
    new = await fleet.start(app.versioned_1)
    assert await new.return_value(timeout=10) == "two"
    fleet.effects.open_gate("a")
    assert await old.return_value(timeout=10) == "one"


@pytest.mark.parametrize("workflow", [app.three_marks, app.calls_and_waits, app.in_order_of_completion])
async def test_the_log_is_the_same_whether_bodies_are_kept_or_rebuilt(
    fleet: Fleet, workflow: WorkflowDefinition[..., Any]
) -> None:
    logs = []
    for live_runs in (1000, 0):
        worker = await fleet.worker(live_runs=live_runs)
        run = await fleet.start(workflow, *(["n"] if workflow is app.three_marks else []))
        if workflow is app.calls_and_waits:
            await fleet.client.resume(await fleet.hook_token(run), app.Go("go"))
        await run.return_value(timeout=10)
        logs.append([(e.type, e.id) for e in await fleet.events(run)])
        worker.kill()
    assert logs[0] == logs[1]
