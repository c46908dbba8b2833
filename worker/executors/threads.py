"""`def` steps: a thread each, from a pool as large as the worker's concurrency.

A thread cannot be stopped. A timed-out one is reported and keeps its slot until it has really ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

from .base import Ended, Error, TimedOut, Value


def _guarded(fn: Callable[..., Any], args: Any, kwargs: Any) -> Ended:
    """The end is a value, so that StopIteration and SystemExit cross the thread like anything else."""
    try:
        return Value(fn(*args, **kwargs))
    except BaseException as error:
        return Error(error)


class ThreadExecution:
    def __init__(self, future: asyncio.Future[Ended], timeout: float | None) -> None:
        self._future = future
        self._timeout = timeout

    async def ended(self) -> Ended:
        done, _ = await asyncio.wait({self._future}, timeout=self._timeout)
        return self._future.result() if done else TimedOut()

    def interrupt(self) -> None:
        """The step sees `is_cancelled()`; nothing else can be done to a thread."""

    async def released(self) -> None:
        await asyncio.wait({self._future})


class ThreadExecutor:
    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="step")

    def start(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, *, context: Context, timeout: float | None
    ) -> ThreadExecution:
        future = self._pool.submit(context.run, _guarded, fn, args, kwargs)
        return ThreadExecution(asyncio.wrap_future(future), timeout)

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
