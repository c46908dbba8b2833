"""`async with running(wf) as client:` is all the scenery: a worker for `wf` beside the test, and a client.

In production the worker is its own process: ``worker run MODULE:wf``, as many as you like.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from worker import Client, Workflows
from worker.runtime.worker import Worker
from worker.settings import Settings

Running = Callable[[Workflows], AbstractAsyncContextManager[Client]]


@pytest.fixture
def running(redis_url: str, namespace: str) -> Running:
    settings = Settings.load(redis_url=redis_url, namespace=namespace)

    @asynccontextmanager
    async def run(wf: Workflows) -> AsyncIterator[Client]:
        worker = Worker(wf, settings)
        job = asyncio.create_task(worker.run())
        async with Client(redis_url, settings=settings) as client:
            yield client
        worker.drain()
        await job

    return run
