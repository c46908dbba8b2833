"""Time to the first step: start() is called → the first step begins, with one idle worker."""

from __future__ import annotations

import asyncio
import time

from .. import app
from ..figures import RESTED, Result, in_floors, median, quantile
from ..scale import Scale
from ..stage import open_stage

_BETWEEN = 25  # runs between two looks at the floor
_PAUSE = 0.01  # seconds between two runs: the worker must have gone back to its bell


async def measure(scale: Scale) -> Result:
    runs, waits = scale.pick(3, 50, 500), []
    async with open_stage() as stage:
        await stage.workers()
        for number in range(runs + 1):  # the first one warms up
            await asyncio.sleep(_PAUSE)
            began = time.monotonic_ns()
            run = await stage.client.start(app.in_a_row, f"first {number}", 1)
            stamps = await stage.result(run)
            waits.append((stamps[0] - began) / 1e9)
            if number % _BETWEEN == 0:
                await stage.sample_floor()
        rested = await stage.floor_after(_PAUSE, runs)
        floor = stage.floor
    return Result(
        [
            in_floors("start() → first step, median", median(waits[1:]), floor, at_most=5),
            in_floors("start() → first step, median", median(waits[1:]), rested, at_most=5, of=RESTED),
            in_floors("start() → first step, p99", quantile(waits[1:], 0.99), floor),
            in_floors("for comparison: one bare call after the same pause, median", rested, floor),
        ]
    )
