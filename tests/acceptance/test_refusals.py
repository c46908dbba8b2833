"""What a worker cannot read or does not know is given back, parked or failed: never lost, always visible."""

from tests.acceptance import app
from tests.acceptance.kit import Fleet, until
from world_redis.events import EventType
from world_redis.runs import Runs

BARE, CHANGED = "tests.acceptance.app:bare", "tests.acceptance.app:changed"


async def test_a_workflow_nobody_knows_is_given_back_then_parked_and_a_good_build_runs_it(
    fleet: Fleet,
) -> None:
    bad = await fleet.worker(BARE, build_id="old", park_after_seconds=0)
    run = await fleet.start(app.one_held_step)
    assert await fleet.parked(run) == "unknown_workflow"
    bad.kill()
    assert "one_held_step" in (await run.info()).parked_detail
    fleet.effects.open_gate("a")
    await fleet.worker(build_id="new")
    assert await run.return_value(timeout=10) == "a"


async def test_a_worker_that_does_not_know_a_workflow_leaves_it_to_one_that_does(fleet: Fleet) -> None:
    await fleet.worker(BARE, build_id="old")
    run = await fleet.start(app.one_held_step)
    await until("it is refused", lambda: fleet.workers[0].said("run deferred"))
    fleet.effects.open_gate("a")
    await fleet.worker(build_id="new")
    assert await run.return_value(timeout=10) == "a"


async def test_a_step_nobody_knows_parks_its_run_and_a_good_build_runs_it(fleet: Fleet) -> None:
    await fleet.worker(build_id="new")
    bad = await fleet.worker(BARE, queues="side", build_id="old", park_after_seconds=0)
    run = await fleet.start(app.needs_a_new_step)
    assert await fleet.parked(run) == "unknown_step"
    bad.kill()
    fleet.effects.open_gate("a")
    await fleet.worker(queues="default,side", build_id="newer")
    assert await run.return_value(timeout=10) == "a"
    assert len(fleet.effects.starts("a")) == 1


async def test_a_changed_body_parks_its_run_which_a_good_build_finishes(fleet: Fleet) -> None:
    good = await fleet.worker(build_id="good")
    run = await fleet.start(app.calls_and_waits)
    token = await fleet.hook_token(run)
    good.kill()
    bad = await fleet.worker(CHANGED, build_id="bad", park_after_seconds=0)
    await fleet.client.resume(token, app.Go("go"))
    assert await fleet.parked(run) == "divergence"
    detail = (await run.info()).parked_detail
    assert "mark" in detail and "slot" in detail
    bad.kill()
    await fleet.worker(build_id="good")
    assert await run.return_value(timeout=10) == ["first", "go", "last"]
    assert [effect.what for effect in fleet.effects.all()] == ["first", "last"]


async def test_a_parked_run_accepts_payloads_and_cancel_and_acts_when_it_goes_on(fleet: Fleet) -> None:
    good = await fleet.worker(build_id="good")
    run = await fleet.start(app.cleans_up)
    await fleet.effects.started("a")
    good.kill()
    bad = await fleet.worker(BARE, build_id="bad", park_after_seconds=0)
    await fleet.parked(run)
    bad.kill()
    await run.cancel()
    assert await run.status() == "running"
    await fleet.worker(build_id="good")
    assert await fleet.finished(run) == "cancelled"
    assert len(fleet.effects.all("cleaned-2")) == 1


async def test_an_unreadable_run_message_parks_its_run_as_a_dead_letter(fleet: Fleet) -> None:
    run = await fleet.start(app.one_held_step)
    await fleet.garble("wake", run)
    await fleet.worker()
    assert await fleet.parked(run) == "undecodable"
    assert len(await fleet.dead_letters()) == 1
    fleet.effects.open_gate("a")
    await Runs(fleet.world).unpark(run.run_id)
    assert await run.return_value(timeout=10) == "a"


async def test_an_unreadable_step_message_fails_its_step_catchably(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.catches_the_side)

    async def queued() -> bool:
        return bool(await fleet.events(run, EventType.STEP_CREATED))

    await until("its step is queued", queued)
    await fleet.garble("s1", run)
    await fleet.worker(queues="side")
    assert "could not be used" in await run.return_value(timeout=10)
    assert len(await fleet.dead_letters()) == 1
    assert fleet.effects.starts("a") == []
