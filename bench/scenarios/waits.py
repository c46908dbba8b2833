"""Waking up: how late a sleep ends, and how soon the next step begins when a hook is resumed."""

from __future__ import annotations

import asyncio
import time

from .. import app
from ..figures import RESTED, Result, in_floors, median, plain, quantile
from ..scale import Scale
from ..stage import Stage, open_stage

_NAP = 0.2  # seconds
_NAPPERS = 10
_BETWEEN = 25  # runs between two looks at the floor
_PAUSE = 0.01  # seconds before a resume: the worker must have gone back to its bell


async def measure(scale: Scale) -> Result:
    resumes = scale.pick(2, 50, 300)
    async with open_stage() as stage:
        await stage.workers()
        late = await _lateness(stage, scale.pick(1, 2, 20))
        resumed = []
        for number in range(resumes):
            resumed.append(await _resume(stage, number))
            if number % _BETWEEN == 0:
                await stage.sample_floor()
        rested = await stage.floor_after(_PAUSE, resumes)
        floor = stage.floor
    return Result(
        [
            plain("sleep lateness, median", median(late) * 1e3, "ms", at_most=5),
            plain("sleep lateness, p99", quantile(late, 0.99) * 1e3, "ms"),
            in_floors("hook resume → next step, median", median(resumed), floor, at_most=6),
            in_floors("hook resume → next step, median", median(resumed), rested, at_most=6, of=RESTED),
            in_floors("hook resume → next step, p99", quantile(resumed, 0.99), floor),
            in_floors("for comparison: one bare call after the same pause, median", rested, floor),
        ]
    )


async def _lateness(stage: Stage, rounds: int) -> list[float]:
    """Seconds between the end of a sleep and the next step; naps are started apart in time."""
    late = []
    for number in range(rounds):
        started = []
        for napper in range(_NAPPERS):
            started.append(await stage.client.start(app.nap, f"nap {number} {napper}", _NAP))
            await asyncio.sleep(0.02)
        for run in started:
            before, after = await stage.result(run)
            late.append((after - before) / 1e9 - _NAP)
    return late


async def _resume(stage: Stage, number: int) -> float:
    run = await stage.client.start(app.resumed, f"hook {number}")
    token = await stage.hook_token(run)
    await asyncio.sleep(_PAUSE)
    began = time.monotonic_ns()
    await stage.client.resume(token, app.Go())
    stamps: list[int] = await stage.result(run)
    return (stamps[0] - began) / 1e9
