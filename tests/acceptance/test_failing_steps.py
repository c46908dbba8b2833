"""Steps that raise, take too long, exit, block the loop, or kill their process."""

import pytest

from tests.acceptance import app
from tests.acceptance.kit import Fleet
from worker import WorkflowRunFailedError
from world_redis.events import EventType


async def test_a_fatal_error_is_caught_by_the_body_at_once(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.fails_for_good)
    assert await run.return_value(timeout=10) == "caught no way"
    assert len(await fleet.events(run, EventType.STEP_STARTED)) == 1


async def test_a_step_is_retried_by_its_policy(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.retries, 2)
    assert await run.return_value(timeout=10) == 3
    first, second, third = fleet.effects.starts("flaky")
    assert second.at - first.at >= 0.05
    assert third.at - second.at >= 0.1


async def test_an_exhausted_step_raises_fatal_with_its_last_error_as_the_cause(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.exhausts)
    assert await run.return_value(timeout=10) == "ValueError: attempt 3"
    assert len(fleet.effects.starts("flaky")) == 3


async def test_a_step_may_choose_when_its_next_attempt_runs(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.waits_as_told)
    await run.return_value(timeout=10)
    first, second = fleet.effects.all("again")
    assert 0.3 <= second.at - first.at < 0.9


async def test_a_step_over_its_time_is_stopped_and_retried(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.times_out)
    assert await run.return_value(timeout=10) == "timed out"
    assert len(fleet.effects.all("too-slow")) == 2


async def test_sys_exit_in_a_step_fails_the_step_and_not_the_worker(fleet: Fleet) -> None:
    worker = await fleet.worker()
    run = await fleet.start(app.survives_an_exit)
    assert await run.return_value(timeout=10) == "SystemExit 3"
    assert worker.alive
    assert len(fleet.effects.all("exits")) == 1, "an exit is not worth another attempt"


async def test_a_step_that_blocks_the_loop_longer_than_the_lease_runs_once(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.blocked)
    assert await run.return_value(timeout=15) == "after"
    assert len(fleet.effects.starts("blocks")) == 1


async def test_a_step_that_kills_its_process_every_time_fails_catchably(fleet: Fleet) -> None:
    run = await fleet.start(app.crashes_every_time)
    for deaths in range(1, 4):
        worker = fleet.launch(max_step_crashes=2)
        await fleet.effects.seen("kills", deaths)
        await worker.exit_code()
    fleet.launch(max_step_crashes=2)
    assert await run.return_value(timeout=15) == "given up after 3"
    assert len(fleet.effects.all("kills")) == 3


async def test_a_poison_step_takes_no_other_run_down_with_it(fleet: Fleet) -> None:
    poison = await fleet.start(app.crashes_every_time)
    others = [await fleet.start(app.three_marks, f"r{i}") for i in range(10)]
    workers = 0
    while await poison.status() not in ("completed", "failed"):
        workers += 1
        assert workers < 12, "it is never given up"
        await fleet.worker_ends_or_run_ends(fleet.launch(), poison)
    assert await poison.return_value() == "given up after 6"
    assert [await other.return_value(timeout=10) for other in others] == [f"r{i}" for i in range(10)]
    # A suspect runs alone after two shared crashes, under its run's message and then under its own.
    for i in range(10):
        assert len(fleet.effects.starts(f"r{i}-0")) <= 5, "a healthy step went down with it again and again"


async def test_a_result_over_the_size_limit_is_an_error_the_body_can_catch(fleet: Fleet) -> None:
    await fleet.worker()
    small = await fleet.start(app.carries_too_much, 1000)
    large = await fleet.start(app.carries_too_much, 2 << 20)
    assert await small.return_value(timeout=10) == "fits"
    assert await large.return_value(timeout=10) == "too large"


async def test_what_a_workflow_raises_is_the_cause_of_its_failure(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.raises, "oops")
    with pytest.raises(WorkflowRunFailedError, match="oops") as failure:
        await run.return_value(timeout=10)
    assert isinstance(failure.value.__cause__, ValueError)
