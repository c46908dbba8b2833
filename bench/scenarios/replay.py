"""A body rebuilt from its log: a run of 1000 steps that rests at a hook, in this process.

Worker time is this process' processor time: while the server collects a page, a worker does other things.
"""

from __future__ import annotations

import asyncio
import gc
import time

from worker.core.spec import SPEC
from worker.runtime.body import Body
from world_redis.events import Event
from world_redis.log import Log
from world_redis.messages import RunContext

from .. import app
from ..figures import Result, median, plain
from ..scale import Scale
from ..stage import Stage, open_stage


async def measure(scale: Scale) -> Result:
    steps, times = scale.pick(30, 1000, 1000), scale.pick(1, 7, 25)
    async with open_stage() as stage:
        await stage.workers()
        run = await stage.client.start(app.resumed, "replay", steps)
        await stage.hook_token(run)
        await asyncio.gather(*(worker.stop() for worker in stage.processes))
        app.wf.resolve()
        taken = [await _replay(stage, run.run_id) for _ in range(times)]
    waited, reading, replaying = (median(part) * 1e3 for part in zip(*taken, strict=True))
    limit = 30 * steps / 1000
    return Result(
        [
            plain(f"cold replay of {steps} steps, worker time", reading + replaying, "ms", at_most=limit),
            plain("of it reading the log", reading, "ms"),
            plain("of it the body", replaying, "ms"),
            plain("from the first read to the last", waited, "ms"),
        ]
    )


async def _replay(stage: Stage, run_id: str) -> tuple[float, float, float]:
    """Seconds until the log is read; of processor time here for reading it, and for the body."""
    gc.collect()
    asked, began = time.perf_counter(), time.process_time()
    events, seed = await read_all(Log(stage.world, "bench"), run_id)
    waited, read = time.perf_counter() - asked, time.process_time()
    context = RunContext(app.resumed.name, 1, SPEC, "default", events[0].at, run_id)
    body = Body(app.resumed, context, run_id, seed, events[0].at, events[0].data)
    body.learn(events)
    body.run()
    done = time.process_time()
    if body.problem is not None or body.fresh:
        raise RuntimeError(f"the replay did not end where the run rests: {body.problem}")
    body.close()
    return waited, read - began, done - read


async def read_all(log: Log, run_id: str) -> tuple[list[Event], bytes]:
    """Every event of a run, page by page, and its seed."""
    events: list[Event] = []
    while True:
        page = await log.read(run_id, seen=events[-1].slot if events else 0, table=True)
        assert page is not None
        events += page.events
        if not page.more:
            return events, page.record["seed"]
