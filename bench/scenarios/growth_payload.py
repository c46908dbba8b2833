"""Growth: the size of what a step takes and answers."""

from __future__ import annotations

from itertools import pairwise

from .. import app
from ..figures import Growth, Result, median
from ..scale import Scale
from ..stage import open_stage

_LARGEST = 1_000_000  # with its quotes still under the limit of 1 MiB


async def measure(scale: Scale) -> Result:
    sizes = scale.pick((100, 1000), (100, 10_000, 100_000), (100, 1000, 10_000, 100_000, _LARGEST))
    steps = scale.pick(5, 15, 40)
    rows = []
    async with open_stage() as stage:
        await stage.workers()
        for size in sizes:
            before = await stage.counts()
            run = await stage.client.start(app.carrying, f"payload {size}", "x" * size, steps)
            stamps = await stage.result(run)
            counts = (await stage.counts()).since(before)
            gap = median([(after - before) / 1e3 for before, after in pairwise(stamps)])
            rows.append((size, gap, counts.bytes_in / steps, counts.bytes_out / steps))
    columns = ("payload bytes", "step gap, µs", "bytes to the server per step", "bytes back per step")
    return Result(growth=Growth("payload", columns, rows, columns[1:]))
