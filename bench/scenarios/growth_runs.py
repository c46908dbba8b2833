"""Growth: runs that are open at the same time. All but one rest at a hook; that one works."""

from __future__ import annotations

import time
from itertools import pairwise

from .. import app
from ..figures import Growth, Result, median
from ..scale import Scale
from ..stage import Stage, open_stage

_STEPS = 200


async def measure(scale: Scale) -> Result:
    sizes = scale.pick((1, 20), (1, 10, 300), (1, 10, 100, 1000, 5000))
    rows = []
    async with open_stage() as stage:
        (worker,) = await stage.workers(concurrency=50)
        resting = 0
        for runs in sizes:
            took = await _open(stage, runs - resting)
            rate = (runs - resting) / took
            resting = runs
            gap = await _gap(stage, f"among {runs}")
            rows.append((runs, rate, gap * 1e6, worker.rss() / 1e6))
    columns = ("open runs", "opened per second", "step gap, µs", "worker MB")
    return Result(growth=Growth("open runs", columns, rows, columns[1:]))


async def _open(stage: Stage, count: int) -> float:
    """Seconds until `count` more runs rest at their hooks."""
    began = time.perf_counter()
    started = await stage.client.start_many(app.resumed, [(f"open {number}",) for number in range(count)])
    for run in started:
        await stage.hook_token(run)
    return time.perf_counter() - began


async def _gap(stage: Stage, label: str) -> float:
    stamps = await stage.result(await stage.client.start(app.in_a_row, label, _STEPS))
    return median([(after - before) / 1e9 for before, after in pairwise(stamps)])
