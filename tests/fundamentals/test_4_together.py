"""Several things at once, with asyncio as you know it."""

import asyncio

from tests.fundamentals.conftest import Running
from worker import Workflows, as_completed, sleep


async def test_gather_runs_steps_side_by_side_across_the_fleet(running: Running) -> None:
    """A few run where the body is; the others go to whoever has a free slot."""
    wf = Workflows()

    @wf.step
    async def square(n: int) -> int:
        return n * n

    @wf.workflow
    async def squares(n: int) -> list[int]:
        return await asyncio.gather(*(square(i) for i in range(n)))

    async with running(wf) as client:
        assert await (await client.start(squares, 20)).return_value(timeout=10) == [i * i for i in range(20)]


async def test_a_task_goes_on_while_the_body_does_something_else(running: Running) -> None:
    """A step call is a coroutine: it runs once it is awaited or made a task."""
    wf = Workflows()

    @wf.step
    async def name(what: str) -> str:
        return what

    @wf.workflow
    async def two() -> list[str]:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(name("first"))
            second = group.create_task(name("second"))
        return [first.result(), second.result()]

    async with running(wf) as client:
        assert await (await client.start(two)).return_value(timeout=10) == ["first", "second"]


async def test_the_first_to_end_may_decide(running: Running) -> None:
    """What a body observes, it observes in the same order in every replay."""
    wf = Workflows()

    @wf.step
    async def offer(price: int) -> int:
        return price

    @wf.workflow
    async def first_offer() -> int:
        async def later(price: int) -> int:
            await sleep("5s")
            return await offer(price)

        tasks = [asyncio.create_task(later(1)), asyncio.create_task(offer(2))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    async with running(wf) as client:
        assert await (await client.start(first_offer)).return_value(timeout=10) == 2


async def test_as_completed_yields_results_in_the_order_they_come(running: Running) -> None:
    """Use ours: asyncio's own starts its tasks in the order of their addresses."""
    wf = Workflows()

    @wf.workflow
    async def race() -> list[str]:
        async def after(seconds: float, name: str) -> str:
            await sleep(seconds)
            return name

        return [await each for each in as_completed([after(0.06, "slow"), after(0.01, "quick")])]

    async with running(wf) as client:
        assert await (await client.start(race)).return_value(timeout=10) == ["quick", "slow"]
