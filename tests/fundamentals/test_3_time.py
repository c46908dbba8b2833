"""Time in a body is durable: it holds no worker, and replays as it was."""

import asyncio
from datetime import datetime

from tests.fundamentals.conftest import Running
from worker import Workflows, now, random, sleep, uuid4


async def test_sleep_suspends_the_run_and_not_a_worker(running: Running) -> None:
    """Seconds, text, a timedelta or a moment; days are as good as seconds."""
    wf = Workflows()

    @wf.workflow
    async def nap() -> float:
        before = now()
        await sleep("50ms")
        return (now() - before).total_seconds()

    async with running(wf) as client:
        assert await (await client.start(nap)).return_value(timeout=10) >= 0.05


async def test_a_timeout_in_a_body_is_durable_too(running: Running) -> None:
    """`asyncio.timeout` works as everywhere, and survives a restart of the worker."""
    wf = Workflows()

    @wf.workflow
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.05):
                await sleep("1 day")
        except TimeoutError:
            return "no longer"
        return "a day later"

    async with running(wf) as client:
        assert await (await client.start(impatient)).return_value(timeout=10) == "no longer"


async def test_time_randomness_and_ids_are_the_same_in_every_replay(running: Running) -> None:
    """Ask `now`, `random` and `uuid4` of the workflow; the ordinary ones change between replays."""
    wf = Workflows()

    @wf.step
    async def record(moment: datetime, number: float, id: str) -> bool:
        return True

    @wf.workflow
    async def draw() -> bool:
        return await record(now(), random().random(), str(uuid4()))

    async with running(wf) as client:
        assert await (await client.start(draw)).return_value(timeout=10)


async def test_a_run_may_start_later(running: Running) -> None:
    """`delay` and `start_at` are options of the start, as is everything that is not an argument."""
    wf = Workflows()

    @wf.workflow
    async def remind() -> str:
        return "time to go"

    async with running(wf) as client:
        run = await client.start(remind.with_options(delay="50ms"))
        assert await run.return_value(timeout=10) == "time to go"
