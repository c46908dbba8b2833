"""Memory of a worker process over many runs: how much, and does it stay flat."""

from __future__ import annotations

from .. import app
from ..figures import Growth, Result, plain
from ..scale import Scale
from ..stage import open_stage

_PARTS = 10


async def measure(scale: Scale) -> Result:
    part = scale.pick(40, 1000, 100_000) // _PARTS
    rows: list[tuple[float, float]] = []
    async with open_stage() as stage:
        (worker,) = await stage.workers(concurrency=50)
        for number in range(1, _PARTS + 1):
            started = await stage.client.start_many(app.three_steps, [(run,) for run in range(part)])
            await stage.marks.reach(part * number, within=part / 5 + 30)
            await stage.result(started[-1])
            rows.append((part * number, worker.rss() / 1e6))
    return Result(
        [
            plain(f"worker memory after {rows[-1][0]:,.0f} runs", rows[-1][1], "MB", at_most=80),
            plain("worker memory, last to first tenth", rows[-1][1] / rows[0][1], "×", at_most=1.05),
        ],
        Growth("worker memory by runs", ("runs", "MB"), rows, ("MB",)),
    )
