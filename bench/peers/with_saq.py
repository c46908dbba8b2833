"""saq."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import os
from typing import Any

from redis.asyncio import Redis
from saq.queue.redis import RedisQueue

from ..marks import mark

queue = RedisQueue(Redis.from_url(os.environ["BENCH_URL"]))  # its own from_url knows no sockets


async def task(ctx: Any) -> None:
    mark()


settings = {"queue": queue, "functions": [task]}


async def fill(count: int) -> None:
    await queue.connect()
    for _ in range(count):
        await queue.enqueue("task")
    await queue.disconnect()
