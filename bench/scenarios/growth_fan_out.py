"""Growth: the number of parallel steps of one run."""

from __future__ import annotations

from ..figures import Growth, Result
from ..scale import Scale
from ..stage import open_stage
from .fan_out import fan_out


async def measure(scale: Scale) -> Result:
    sizes = scale.pick((10, 20), (10, 100, 300), (10, 30, 100, 300, 1000, 2000))
    rows = []
    async with open_stage() as stage:
        await stage.workers(concurrency=100)
        await fan_out(stage, "warm", 10)
        for steps in sizes:
            before = await stage.counts()
            first, last = await fan_out(stage, f"growth {steps}", steps)
            scripts = (await stage.counts()).since(before).scripts
            rows.append((steps, first * 1e3, last * 1e3, last * 1e6 / steps, scripts / steps))
    columns = ("parallel steps", "first done, ms", "last done, ms", "µs per step", "calls per step")
    return Result(growth=Growth("fan-out", columns, rows, columns[1:4]))
