"""Time to the first step: start() is called → the first step begins, with one idle worker.

One run after the other, without a rest, so that all are awake; and after a pause, in which all go to sleep.
"""

from __future__ import annotations

import asyncio
import time

from .. import app
from ..figures import RESTED, Result, in_both_floors, in_floors, median, quantile
from ..scale import Scale
from ..stage import Stage, open_stage

_WHAT = "start() → first step"
_BETWEEN = 25  # runs between two looks at the floor
_PAUSE = 0.01  # seconds of rest before a run


async def measure(scale: Scale) -> Result:
    runs = scale.pick(3, 50, 500)
    async with open_stage() as stage:
        await stage.workers()
        warm = await _first_steps(stage, runs)
        paused = await _first_steps(stage, runs, pause=_PAUSE)
        rested = await stage.floor_after(_PAUSE, runs)
        floor, link = stage.floor, stage.link_floor
    return Result(
        [
            *in_both_floors(f"{_WHAT}, median (one after the other)", median(warm), floor, link, at_most=5),
            in_floors(f"{_WHAT}, p99 (one after the other)", quantile(warm, 0.99), floor),
            in_floors(f"{_WHAT}, median (after a pause)", median(paused), rested, at_most=5, of=RESTED),
            in_floors(f"{_WHAT}, p99 (after a pause)", quantile(paused, 0.99), rested, of=RESTED),
            in_floors("for comparison: one bare call after the same pause, median", rested, floor),
        ]
    )


async def _first_steps(stage: Stage, runs: int, *, pause: float = 0.0) -> list[float]:
    """Seconds until the first step of each run. It is started `pause` after the result of the one before: the
    worker is idle again. One that follows a look at the floor is not counted: the worker slept meanwhile."""
    waits: list[float] = []
    while len(waits) < runs:
        await stage.sample_floor()
        count = min(_BETWEEN, runs - len(waits))
        waits += [await _first_step(stage, pause) for _ in range(1 + count)][1:]
    return waits


async def _first_step(stage: Stage, pause: float) -> float:
    if pause:
        await asyncio.sleep(pause)
    began = time.monotonic_ns()
    run = await stage.client.start(app.in_a_row, "first", 1)
    return ((await stage.stamps(run))[0] - began) / 1e9
