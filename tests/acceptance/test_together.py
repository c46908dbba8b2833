"""Several things at once in a body, over real workers."""

from tests.acceptance import app
from tests.acceptance.kit import Fleet
from world_redis.events import EventType


async def test_the_first_of_two_queued_steps_lets_the_body_go_on_at_once(fleet: Fleet) -> None:
    await fleet.worker()
    await fleet.worker(queues="side")
    run = await fleet.start(app.first_of_two)
    (went_on,) = await fleet.effects.seen("went-on")
    (quick,) = fleet.effects.all("quick", "end")
    assert went_on.at - quick.at < 0.5
    fleet.effects.open_gate("long")
    assert await run.return_value(timeout=10) == ["quick", "long"]


async def test_a_wide_gather_is_shared_by_the_fleet(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker(concurrency=4)
    run = await fleet.start(app.together, 120)
    assert await run.return_value(timeout=15) == [f"w{i}" for i in range(120)]
    done = fleet.effects.all("", "end")
    assert len(done) == 120
    assert len({effect.pid for effect in done}) == 2
    assert len(await fleet.events(run, EventType.STEP_STARTED)) == 120


async def test_a_task_group_returns_what_its_steps_returned(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.task_group)
    assert await run.return_value(timeout=10) == ["a", "b", "c"]


async def test_a_failure_in_a_task_group_cancels_its_siblings(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.task_group_with_a_failure)
    assert await run.return_value(timeout=10) == ["broken"]


async def test_a_timeout_in_a_body_is_durable_and_its_step_ends_by_itself(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.gives_up_waiting)
    assert await run.return_value(timeout=10) == "gave-up"
    assert fleet.effects.all("long", "end") == []
    fleet.effects.open_gate("long")
    await fleet.effects.seen("long", 2)
    assert len(fleet.effects.starts("long")) == 1


async def test_results_come_in_the_order_they_end(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.in_order_of_completion)
    assert await run.return_value(timeout=10) == ["a", "b", "c"]
