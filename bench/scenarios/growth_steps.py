"""Growth: the number of sequential steps of one run."""

from __future__ import annotations

import time
from itertools import pairwise

from .. import app
from ..figures import Growth, Result, median
from ..scale import Scale
from ..stage import open_stage

_LATE = 10  # gaps at the end of a run


async def measure(scale: Scale) -> Result:
    sizes = scale.pick((10, 20), (10, 100, 1000), (10, 100, 1000, 3000, 10_000))
    rows = []
    async with open_stage(max_events=100_000) as stage:
        await stage.workers()
        for steps in sizes:
            began = time.monotonic_ns()
            run = await stage.client.start(app.in_a_row, f"growth {steps}", steps)
            stamps = await stage.result(run)
            gaps = [(after - before) / 1e3 for before, after in pairwise(stamps)]
            total = (stamps[-1] - began) / 1e3
            memory = await stage.memory_of(run) / steps
            rows.append((steps, total / steps, median(gaps[-_LATE:]), memory))
    columns = ("steps", "µs per step", "last gaps, µs", "Redis bytes per step")
    return Result(growth=Growth("sequential steps", columns, rows, columns[1:3]))
