"""Cancel, terminate, children."""

import pytest

from tests.acceptance import app
from tests.acceptance.kit import Fleet, until
from worker import RunCancelledError, RunExpiredError
from world_redis.events import EventType


async def test_cancel_lets_finally_run_steps_and_ends_the_run_cancelled(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.cleans_up)
    await fleet.effects.started("a")
    await run.cancel(reason="enough")
    with pytest.raises(RunCancelledError, match="enough"):
        await run.return_value(timeout=10)
    assert len(fleet.effects.all("cleaned-1")) == len(fleet.effects.all("cleaned-2")) == 1
    fleet.effects.open_gate("a")
    await until("the step ends by itself", lambda: fleet.effects.all("a", "end"))


async def test_cancel_wakes_a_sleeping_run(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.sleeps_long)

    async def sleeping() -> bool:
        table = (await fleet.read(run)).table
        return table is not None and bool(table.waits)

    await until("the run sleeps", sleeping)
    await run.cancel()
    assert await fleet.finished(run) == "cancelled"
    assert len(fleet.effects.all("cleaned")) == 1


async def test_a_cancellable_step_is_told_and_awaited(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.cancels_a_listening_step)
    await fleet.effects.started("listens")
    await run.cancel()
    assert await fleet.finished(run) == "cancelled"
    assert fleet.effects.most_at_once("listens") == 1
    assert len(fleet.effects.all("listens")) == 2
    ends = await fleet.events(run, EventType.STEP_COMPLETED, EventType.STEP_FAILED)
    assert len(ends) == 1


async def test_terminate_ends_a_run_at_once_and_runs_nothing_more(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.cleans_up)
    await fleet.effects.started("a")
    await run.terminate(reason="now")
    with pytest.raises(RunCancelledError, match="now"):
        await run.return_value(timeout=2)
    fleet.effects.open_gate("a")
    await until(
        "the step is over", lambda: fleet.effects.most_at_once("a") and len(fleet.effects.all("a")) == 2
    )
    assert fleet.effects.all("cleaned-1") == []
    with pytest.raises(RunExpiredError):
        await run.cancel()


async def test_children_return_their_results(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.parent_of_marks)
    assert await run.return_value(timeout=10) == ["x", "y"]
    assert len(await run.children()) == 2


async def test_a_childs_failure_reaches_its_parent(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.parent_of_a_failure)
    assert await run.return_value(timeout=10) == "ValueError: inside"


async def test_a_cancelled_parent_passes_it_on_and_waits_for_the_childs_cleaning(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.parent_of_cleans_up)
    await fleet.effects.started("a")
    (child,) = await run.children()
    await run.cancel()
    assert await fleet.finished(run) == "cancelled"
    assert await fleet.finished(child) == "cancelled"
    assert len(fleet.effects.all("cleaned-2")) == 1


async def test_a_cancelled_child_is_an_error_in_its_parent(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.parent_of_a_cancelled_child)
    await fleet.effects.started("a")
    (child,) = await run.children()
    await child.cancel()
    assert await run.return_value(timeout=10) == "the child was cancelled"


async def test_terminating_a_parent_cancels_its_children(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.parent_of_cleans_up)
    await fleet.effects.started("a")
    (child,) = await run.children()
    await run.terminate()
    assert await fleet.finished(child) == "cancelled"
    assert len(fleet.effects.all("cleaned-2")) == 1


async def test_a_detached_child_outlives_its_parent(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.parent_that_lets_go)
    child = fleet.client.get_run(await run.return_value(timeout=10), app.one_held_step)
    await fleet.effects.started("a")
    assert await child.status() == "running"
    fleet.effects.open_gate("a")
    assert await child.return_value(timeout=10) == "a"
