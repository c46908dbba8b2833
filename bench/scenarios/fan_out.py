"""Parallel steps on one worker, three inline and the rest queued: when is the first done, when the last."""

from __future__ import annotations

import time

from .. import app
from ..figures import Result, in_floors, median, plain
from ..scale import Scale
from ..stage import Stage, open_stage

_CONCURRENCY = 100


async def measure(scale: Scale) -> Result:
    few, many, runs = scale.pick(10, 100, 100), scale.pick(20, 1000, 1000), scale.pick(1, 3, 7)
    async with open_stage() as stage:
        await stage.workers(concurrency=_CONCURRENCY)
        await fan_out(stage, "warm", 10)
        first, last = await _medians(stage, few, runs)
        _, last_of_many = await _medians(stage, many, runs // 2 + 1)
        floor = stage.floor
    return Result(
        [
            in_floors(f"{few}-way fan-out, first step done", first, floor),
            in_floors(f"{few}-way fan-out, last step done", last, floor, at_most=3.0 * few),
            in_floors(f"{many}-way fan-out, last step done", last_of_many, floor),
            plain(f"{many}-way to {few}-way", last_of_many / last, "×", at_most=1.1 * many / few),
        ]
    )


async def fan_out(stage: Stage, label: str, steps: int) -> tuple[float, float]:
    """Seconds from start() to the first and the last of `steps` parallel steps."""
    began = time.monotonic_ns()
    stamps = await stage.result(await stage.client.start(app.at_once, label, steps))
    return (min(stamps) - began) / 1e9, (max(stamps) - began) / 1e9


async def _medians(stage: Stage, steps: int, runs: int) -> tuple[float, float]:
    taken = []
    for number in range(runs):
        taken.append(await fan_out(stage, f"{steps} {number}", steps))
        await stage.sample_floor()
    return median([first for first, _ in taken]), median([last for _, last in taken])
