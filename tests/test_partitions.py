"""A namespace that grows: new partitions are used once everybody reads them, and none is ever lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.acceptance.kit import until
from worker import Client, Workflows
from worker.runtime.worker import Worker
from worker.settings import Settings
from world_redis.ids import partition_of
from world_redis.roster import live_workers
from world_redis.world import RedisWorld

wf = Workflows()


@wf.workflow
async def greet(name: str) -> str:
    return f"hello {name}"


@pytest.fixture
async def leave() -> AsyncIterator[list[Worker]]:
    """Workers to be drained at the end."""
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        worker.drain()


def settings(url: str, namespace: str, partitions: int) -> Settings:
    return Settings.load(
        redis_url=url, namespace=namespace, partitions=partitions, inline_ownership_lease_seconds=1
    )


async def begin(worker: Worker) -> "asyncio.Task[int]":
    task = asyncio.create_task(worker.run())

    async def is_ready() -> bool:
        return not worker.ready

    await until("the worker is connected", is_ready)
    return task


async def test_runs_spread_over_all_partitions_and_come_back(
    redis_url: str, namespace: str, leave: list[Worker]
) -> None:
    four = settings(redis_url, namespace, 4)
    leave.append(Worker(wf, four))
    running = await begin(leave[0])
    async with Client(redis_url, settings=four) as client:
        runs = await client.start_many(greet, [[f"n{number}"] for number in range(40)])
        assert {partition_of(run.run_id) for run in runs} == {0, 1, 2, 3}
        results = await asyncio.gather(*(run.return_value(timeout=20) for run in runs))
    assert results == [f"hello n{number}" for number in range(40)]
    leave[0].drain()
    assert await running == 0


async def test_a_worker_started_with_fewer_reads_all_that_are_in_use(
    redis_url: str, namespace: str, leave: list[Worker]
) -> None:
    async with RedisWorld(redis_url, namespace=namespace, partitions=4, lease=1):
        pass
    leave.append(Worker(wf, settings(redis_url, namespace, 1)))
    running = await begin(leave[0])
    async with Client(redis_url, settings=settings(redis_url, namespace, 1)) as client:
        runs = await client.start_many(greet, [["x"]] * 30)
        await asyncio.gather(*(run.return_value(timeout=20) for run in runs))
        assert {partition_of(run.run_id) for run in runs} == {0, 1, 2, 3}
    leave[0].drain()
    assert await running == 0


async def test_new_partitions_wait_until_every_live_worker_reads_them(
    redis_url: str, namespace: str, leave: list[Worker]
) -> None:
    leave.append(Worker(wf, settings(redis_url, namespace, 1)))
    running = await begin(leave[0])
    async with Client(redis_url, settings=settings(redis_url, namespace, 4)) as client:
        world = await client.world()
        await until("the worker has announced itself", lambda: live_workers(world))
        async with asyncio.timeout(20):
            first = await client.start(greet, "early")
            assert await first.return_value() == "hello early"
            while True:  # the worker learns of the new ones when it next announces itself
                client._look_again = 0.0
                run = await client.start(greet, "later")
                assert await run.return_value() == "hello later"
                if partition_of(run.run_id) > 0:
                    break
    leave[0].drain()
    assert await running == 0
