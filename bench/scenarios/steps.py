"""Sequential inline steps: the gap between two of them, early and late, and what 1020 of them cost."""

from __future__ import annotations

import time
from itertools import pairwise

from .. import app
from ..figures import Result, in_both_floors, in_floors, median, plain, quantile
from ..scale import Scale
from ..stage import open_stage

RANGES = ((1, 20), (101, 120), (1001, 1020))


async def measure(scale: Scale) -> Result:
    runs, steps = scale.pick(1, 2, 11), scale.pick(30, 1020, 1020)
    gaps: list[list[float]] = []  # by run, in seconds
    overheads: list[float] = []
    async with open_stage() as stage:
        (worker,) = await stage.workers()
        spent = worker.cpu()
        for number in range(runs):
            began = time.monotonic_ns()
            run = await stage.client.start(app.in_a_row, f"row {number}", steps)
            stamps = await stage.result(run)
            overheads.append((stamps[-1] - began) / 1e9)
            gaps.append([(after - before) / 1e9 for before, after in pairwise(stamps)])
            await stage.sample_floor()
        used = worker.cpu()
        floor, link = stage.floor, stage.link_floor
        mean_floor, mean_link = stage.mean_floor, stage.mean_link_floor
    every = [gap for run_gaps in gaps for gap in run_gaps]
    overhead, name = median(overheads) / steps, f"overhead of {steps} sequential steps, per step"
    result = Result(
        [
            *in_both_floors("step gap, median", median(every), floor, link, at_most=1.5),
            in_floors("step gap, p99", quantile(every, 0.99), floor),
            # A sum of steps against a sum of calls.
            *in_both_floors(name, overhead, mean_floor, mean_link, at_most=1.6),
        ]
    )
    ranges = [(first, last) for first, last in RANGES if last <= steps]
    medians = [median([gap for each in gaps for gap in each[first - 1 : last]]) for first, last in ranges]
    for (first, last), gap in zip(ranges, medians, strict=True):
        result.figures.append(in_floors(f"step gap, steps {first}–{last}", gap, floor))
    if len(medians) > 1:
        growth = medians[-1] / medians[0]
        result.figures.append(plain("late gaps to early gaps", growth, "×", at_most=1.1))
    if spent is not None and used is not None:
        result.figures.append(in_floors("worker CPU per step", (used - spent) / (runs * steps), floor))
    return result
