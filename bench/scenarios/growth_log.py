"""Growth: the length of a log that is read from its beginning."""

from __future__ import annotations

import time

from world_redis.log import Log

from .. import app
from ..figures import Growth, Result, median
from ..scale import Scale
from ..stage import open_stage
from .replay import read_all


async def measure(scale: Scale) -> Result:
    sizes = scale.pick((10, 20), (10, 100, 1000), (10, 100, 1000, 8000))
    rows = []
    async with open_stage(max_events=100_000) as stage:
        await stage.workers()
        log = Log(stage.world, "bench")
        for steps in sizes:
            run = await stage.client.start(app.doing_nothing, steps)
            await stage.result(run)
            seconds, events = [], 0
            for _ in range(scale.pick(1, 3, 7)):
                began = time.perf_counter()
                events = len((await read_all(log, run.run_id))[0])
                seconds.append(time.perf_counter() - began)
            rows.append((events, median(seconds) * 1e3, median(seconds) * 1e6 / events))
    columns = ("events", "ms to read all", "µs per event")
    return Result(growth=Growth("log read", columns, rows, columns[1:]))
