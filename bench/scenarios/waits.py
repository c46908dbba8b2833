"""Waking up: how late a sleep ends, and how soon the next step begins when a hook is resumed.

Hooks are resumed one after the other, without a rest, so that all are awake; and after a pause.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from worker import Run

from .. import app
from ..figures import RESTED, Result, in_both_floors, in_floors, median, plain, quantile
from ..scale import Scale
from ..stage import Stage, open_stage

_NAP = 0.2  # seconds
_NAPPERS = 10
_WHAT = "hook resume → next step"
_AT_REST = 25  # runs that wait at their hooks at the same time
_PAUSE = 0.01  # seconds of rest before a resume


async def measure(scale: Scale) -> Result:
    resumes = scale.pick(2, 50, 300)
    async with open_stage() as stage:
        await stage.workers()
        late = await _lateness(stage, scale.pick(1, 2, 20))
        warm = await _resumes(stage, resumes)
        paused = await _resumes(stage, resumes, pause=_PAUSE)
        rested = await stage.floor_after(_PAUSE, resumes)
        floor, link = stage.floor, stage.link_floor
    return Result(
        [
            plain("sleep lateness, median", median(late) * 1e3, "ms", at_most=5),
            plain("sleep lateness, p99", quantile(late, 0.99) * 1e3, "ms"),
            *in_both_floors(f"{_WHAT}, median (one after the other)", median(warm), floor, link, at_most=6),
            in_floors(f"{_WHAT}, p99 (one after the other)", quantile(warm, 0.99), floor),
            in_floors(f"{_WHAT}, median (after a pause)", median(paused), rested, at_most=6, of=RESTED),
            in_floors(f"{_WHAT}, p99 (after a pause)", quantile(paused, 0.99), rested, of=RESTED),
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


async def _resumes(stage: Stage, resumes: int, *, pause: float = 0.0) -> list[float]:
    """Seconds from each resume to the next step of its run; the next resume comes `pause` after that run's
    result. All runs rest at their hooks when the first one is resumed. It is not counted: the worker slept
    while the floor was looked at."""
    waits: list[float] = []
    while len(waits) < resumes:
        count = min(_AT_REST, resumes - len(waits))
        runs = [await stage.client.start(app.resumed, f"hook {number}") for number in range(1 + count)]
        tokens = [await stage.hook_token(run) for run in runs]
        await stage.sample_floor()
        resumed = [await _resume(stage, *each, pause) for each in zip(runs, tokens, strict=True)]
        waits += resumed[1:]
    return waits


async def _resume(stage: Stage, run: Run[Any], token: str, pause: float) -> float:
    if pause:
        await asyncio.sleep(pause)
    began = time.monotonic_ns()
    await stage.client.resume(token, app.Go())
    return ((await stage.stamps(run))[0] - began) / 1e9
