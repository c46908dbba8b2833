"""Durable three-step runs per second: a full backlog, one worker process, then two."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from .. import app
from ..figures import Figure, Result, plain
from ..scale import Scale
from ..stage import Process, Stage, open_stage

_SHARE = 0.35  # of a core for each worker, where there are too few cores for two workers and the server
_TURN = 0.02  # seconds in which a worker gets its share once


async def measure(scale: Scale) -> Result:
    result = Result()
    one, two = await _rate(scale, 1, result), await _rate(scale, 2, result)
    cores = os.cpu_count() or 1
    if cores >= 3:
        result.figures.append(plain("two worker processes to one", two / one, "×", at_least=1.6))
        return result
    # Two workers and the server want more cores than there are: then a second process adds nothing, whatever
    # the code. Held to a share of a core each, they have room.
    result.figures.append(plain(f"two worker processes to one, on {cores} cores", two / one, "×"))
    one, two = await _rate(scale, 1, result, _SHARE), await _rate(scale, 2, result, _SHARE)
    name = f"two worker processes to one, each held to {_SHARE:.0%} of a core"
    result.figures.append(plain(name, two / one, "×", at_least=1.6))
    return result


async def _rate(scale: Scale, count: int, result: Result, share: float = 1.0) -> float:
    concurrency = scale.pick(5, 50, 50)  # few: else one process takes the whole little queue at once
    runs = round(count * scale.pick(60, 600, 10_000) * share)
    async with open_stage() as stage:
        workers = await stage.workers(count, concurrency=concurrency)
        for worker in workers:  # so that all begin at once, on a full queue
            worker.pause()
        started = await stage.client.start_many(app.three_steps, [(number,) for number in range(runs)])
        server, spent = await stage.server_cpu(), workers[0].cpu()
        async with _held_to(share, workers):
            await stage.marks.reach(runs, within=30 + runs / 20)
        for run in started[-concurrency:]:
            await stage.result(run)
        rate = stage.marks.rate(processes=count)
        result.figures.append(Figure(_name(count, share), rate, "runs/s"))
        if count == 1 and share == 1:
            result.figures += await _costs(stage, runs, server, spent)
        for worker in workers:
            worker.check()
    return rate


def _name(count: int, share: float) -> str:
    name = "one worker process" if count == 1 else f"{count} worker processes"
    held = "" if share == 1 else f" held to {share:.0%} of a core each"
    return f"three-step runs per second, {name}{held}"


@asynccontextmanager
async def _held_to(share: float, workers: Sequence[Process]) -> AsyncIterator[None]:
    """Let paused workers go on: always, or for their share of every turn, one after the other's start."""

    async def hold(worker: Process, late: float) -> None:
        await asyncio.sleep(late)
        while True:
            worker.resume()
            await asyncio.sleep(_TURN * share)
            worker.pause()
            await asyncio.sleep(_TURN * (1 - share))

    holds = []
    if share < 1:
        holds = [
            asyncio.create_task(hold(worker, _TURN * number / len(workers)))
            for number, worker in enumerate(workers)
        ]
    try:
        for worker in workers:
            worker.resume()
        yield
    finally:
        for each in holds:
            each.cancel()
        await asyncio.gather(*holds, return_exceptions=True)
        for worker in workers:
            worker.resume()


async def _costs(stage: Stage, runs: int, server: float, spent: float | None) -> list[Figure]:
    """Processor time per run: what bounds the rate, whoever else uses the machine."""
    figures = [
        Figure("server CPU per three-step run", (await stage.server_cpu() - server) / runs * 1e6, "µs")
    ]
    now = stage.processes[0].cpu()
    if now is not None and spent is not None:
        figures.append(Figure("worker CPU per three-step run", (now - spent) / runs * 1e6, "µs"))
    return figures
