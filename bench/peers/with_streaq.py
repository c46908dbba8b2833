"""streaq."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import os

from streaq import Worker

from ..marks import mark

worker = Worker(redis_url=os.environ["BENCH_URL"])


@worker.task
async def task() -> None:
    mark()


async def fill(count: int) -> None:
    async with worker:
        await worker.enqueue_many([task.enqueue() for _ in range(count)])
