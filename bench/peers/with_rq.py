"""RQ: its worker forks for every job, as it does by default."""

from __future__ import annotations

import os

from redis import Redis
from rq import Queue

from ..marks import mark


def task() -> None:
    mark()


async def fill(count: int) -> None:
    queue = Queue(connection=Redis.from_url(os.environ["BENCH_URL"]))
    queue.enqueue_many([Queue.prepare_data(task) for _ in range(count)])
