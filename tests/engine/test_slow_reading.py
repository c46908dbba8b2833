"""Time spent on reading arguments makes no answer late: the keeper renews meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.engine.kit import LEASE, Clock, Stage
from worker import Workflows
from world_redis.events import EventType
from world_redis.scripts import ScriptCall

wf = Workflows()
clocks: list[Clock] = []


@dataclass
class Slow:
    """Every reading takes longer than a lease, by the clock of this process."""

    grams: int

    def __post_init__(self) -> None:
        for clock in clocks:
            clock.ms += int(LEASE * 1000) + 1  # the server's stands: nobody's lease lapses


@wf.step
async def weigh(parcel: Slow) -> int:
    return parcel.grams


@wf.workflow
async def ship(grams: int) -> int:
    return await weigh(Slow(grams))


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    clocks.clear()
    async with Stage(redis_url, wf) as ready:
        yield ready


async def test_arguments_that_take_longer_to_read_than_a_lease_start_their_step_once(stage: Stage) -> None:
    run_id = await stage.start(ship, 5)
    process = stage.process()

    async def on_call(call: ScriptCall, answered: bool) -> None:
        clocks[:] = [stage.clock] if call.script == "append" and not answered else []

    process.ports.on_call = on_call
    await process.work(lambda: stage.finished(run_id))
    assert [event.type for event in await stage.events(run_id)].count(EventType.STEP_STARTED) == 1
    await process.leave()
