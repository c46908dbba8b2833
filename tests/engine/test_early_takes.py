"""A take is sent a little early for what falls due, and never often: a due time costs two at the most."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from tests.engine import app
from tests.engine.kit import Clock, Stage
from world_redis.scripts import ScriptCall

DELAY = 20  # ms


@dataclass
class Sky:
    """Time with fractions of a ms, of which the server counts whole ones. A call takes `way` ms each way."""

    clock: Clock
    now: float
    way: float

    async def passes(self, ms: float) -> None:
        self.now += ms
        await self.clock.forward(math.floor(self.now) - self.clock.ms)

    async def on_call(self, call: ScriptCall, answered: bool) -> None:
        await self.passes(self.way)


@pytest.mark.parametrize(
    ("fraction", "way", "takes", "late"),
    [
        (0.0, 0.0, 2, 0.0),
        (0.2, 0.1, 2, 0.6),
        (0.9, 0.2, 1, 0.3),
        (0.5, 3.0, 1, 5.5),
    ],
    ids=["no time is lost", "early by a bit", "late by a bit", "a server far away"],
)
async def test_a_due_time_costs_one_take_or_two(
    stage: Stage, fraction: float, way: float, takes: int, late: float
) -> None:
    """A take slips by the `fraction` of a ms that the server hides when it tells the time left, and by the
    way there and back; one ms of that is made up for. `late`: when the script that hands out runs."""
    run_id = await stage.start(app.in_a_row)
    process = stage.process()
    (delivery,) = (await process.host.queue.take(0, ["default"], runs=1, steps=0, empty=True)).deliveries
    await process.host.queue.defer(0, [delivery.held], due_in=DELAY)
    due = stage.clock.ms + DELAY

    sky = Sky(stage.clock, stage.clock.ms + DELAY / 2 + fraction - way, way)
    process.ports.on_call = sky.on_call
    process.ports.calls.clear()
    handed_out = 0.0
    await sky.passes(await process.intake.take())
    while process.intake.empty:
        wait = await process.intake.take()
        handed_out = sky.now - way
        await sky.passes(wait)
    assert process.ports.calls.count("take") == 1 + takes
    assert handed_out - due == pytest.approx(late, abs=1e-3)
    await process.rest()
    assert await stage.finished(run_id)
