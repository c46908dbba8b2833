"""What a step costs in calls, bytes and messages: a long run less a short one. No clock is read here."""

from __future__ import annotations

from .. import app
from ..figures import Figure, Result, plain
from ..scale import Scale
from ..stage import Counts, Stage, open_stage


async def measure(scale: Scale) -> Result:
    short, long = 10, scale.pick(110, 1010, 1010)
    async with open_stage() as stage:
        await stage.workers(concurrency=20)
        for queued in (False, True):  # the server has every script from here on
            await _of_run(stage, f"warm {queued}", 10, queued=queued)
        inline = await _of_step(stage, short, long, queued=False)
        apart = await _of_step(stage, short, long, queued=True)
        memory = await _memory(stage, short, long)
        whole = await _memory_of_run(stage, 1)
    return Result(
        [
            plain("script calls per inline step", inline[0], "calls", at_most=1.05),
            Figure("bytes to the server per inline step", inline[1], "bytes"),
            Figure("bytes from the server per inline step", inline[2], "bytes"),
            Figure("messages per inline step", inline[3], "messages"),
            plain("script calls per queued step", apart[0], "calls", at_most=1),
            Figure("bytes to the server per queued step", apart[1], "bytes"),
            Figure("bytes from the server per queued step", apart[2], "bytes"),
            Figure("messages per queued step", apart[3], "messages"),
            plain("Redis memory per trivial step", memory, "bytes", at_most=300),
            Figure("Redis memory of a finished one-step run", whole, "bytes"),
        ]
    )


async def _of_step(stage: Stage, short: int, long: int, *, queued: bool) -> list[float]:
    less = await _of_run(stage, f"short {queued}", short, queued=queued)
    more = await _of_run(stage, f"long {queued}", long, queued=queued)
    return [each / (long - short) for each in more.since(less)]


async def _of_run(stage: Stage, label: str, steps: int, *, queued: bool) -> Counts:
    before = await stage.counts()
    await stage.result(await stage.client.start(app.at_once if queued else app.in_a_row, label, steps))
    return (await stage.counts()).since(before)


async def _memory(stage: Stage, short: int, long: int) -> float:
    less, more = [await _memory_of_run(stage, steps) for steps in (short, long)]
    return (more - less) / (long - short)


async def _memory_of_run(stage: Stage, steps: int) -> int:
    # Its steps answer nothing and its end does not grow with them.
    run = await stage.client.start(app.doing_nothing, steps)
    await stage.result(run)
    return await stage.memory_of(run)
