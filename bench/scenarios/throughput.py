"""Durable three-step runs per second: a full backlog, one worker process, then two."""

from __future__ import annotations

import os

from .. import app
from ..figures import Figure, Result, plain
from ..scale import Scale
from ..stage import Stage, open_stage


async def measure(scale: Scale) -> Result:
    result = Result()
    rates = [await _rate(scale, count, result) for count in (1, 2)]
    result.figures.append(_gain(rates[1] / rates[0], os.cpu_count() or 1))
    return result


def _gain(ratio: float, cores: int) -> Figure:
    """What a second process adds. Where two workers and the server share fewer than three cores, these are
    used up before, whatever the code: then there is no target."""
    name = "two worker processes to one"
    if cores < 3:
        return plain(f"{name}, on {cores} cores for them and the server", ratio, "×")
    return plain(name, ratio, "×", at_least=1.6)


async def _rate(scale: Scale, count: int, result: Result) -> float:
    concurrency = scale.pick(5, 50, 50)  # few: else one process takes the whole little queue at once
    runs = count * scale.pick(60, 600, 10_000)
    async with open_stage() as stage:
        workers = await stage.workers(count, concurrency=concurrency)
        for worker in workers:  # so that all begin at once, on a full queue
            worker.pause()
        started = await stage.client.start_many(app.three_steps, [(number,) for number in range(runs)])
        server, spent = await stage.server_cpu(), workers[0].cpu()
        for worker in workers:
            worker.resume()
        await stage.marks.reach(runs, within=30 + runs / 20)
        for run in started[-concurrency:]:
            await stage.result(run)
        rate = stage.marks.rate(processes=count)
        name = "one worker process" if count == 1 else f"{count} worker processes"
        result.figures.append(Figure(f"three-step runs per second, {name}", rate, "runs/s"))
        if count == 1:
            result.figures += await _costs(stage, runs, server, spent)
        for worker in workers:
            worker.check()
    return rate


async def _costs(stage: Stage, runs: int, server: float, spent: float | None) -> list[Figure]:
    """Processor time per run: what bounds the rate, whoever else uses the machine."""
    figures = [
        Figure("server CPU per three-step run", (await stage.server_cpu() - server) / runs * 1e6, "µs")
    ]
    now = stage.processes[0].cpu()
    if now is not None and spent is not None:
        figures.append(Figure("worker CPU per three-step run", (now - spent) / runs * 1e6, "µs"))
    return figures
