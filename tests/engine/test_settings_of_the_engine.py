"""What an operator may set changes where bodies and steps run, never what a run is."""

from __future__ import annotations

import pytest

from tests.engine import app
from tests.engine.kit import Stage
from tests.engine.plays import Performance, Play, Written, every_play
from worker.runtime.host import Limits
from world_redis.scripts import Switches


async def perform(url: str, play: Play, limits: Limits) -> Written:
    switches = Switches(limits.inline_ownership, limits.queue_backstop)
    async with Stage(url, app.wf, switches=switches) as stage:
        performance = await Performance.begin(stage, play)
        process = stage.process(limits=limits)
        await process.work(performance.over)
        await process.leave()
        return await performance.written(lives=1)


@every_play
async def test_a_run_has_the_same_log_whether_its_body_is_kept_or_rebuilt_at_every_wake(
    redis_url: str, play: Play
) -> None:
    kept = await perform(redis_url, play, Limits(strict=True))
    rebuilt = await perform(redis_url, play, Limits(strict=True, live_runs=0))
    assert rebuilt.log == kept.log
    assert rebuilt.result == kept.result


@every_play
@pytest.mark.parametrize(
    "limits",
    [
        Limits(strict=True, max_inline_steps=1),
        Limits(strict=True, max_inline_steps=16),
        Limits(strict=True, inline_ownership=False),
        Limits(strict=True, queue_backstop=False),
        Limits(strict=True, async_step_completed=True),
    ],
    ids=["one-inline", "all-inline", "no-inline-ownership", "no-queue-backstop", "deferred-completion"],
)
async def test_switches_and_bounds_change_no_result(redis_url: str, play: Play, limits: Limits) -> None:
    usual = await perform(redis_url, play, Limits(strict=True))
    other = await perform(redis_url, play, limits)
    assert (other.decided, other.result) == (usual.decided, usual.result)
