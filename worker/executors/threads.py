"""`def` steps: a thread each, from a pool as large as the worker's concurrency.

A thread cannot be stopped. A timed-out one is reported and keeps its slot until it has really ended.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from .base import Code, Ended, Error, Listener, TimedOut, Value


def _guarded(code: Code) -> Ended:
    """The end is a value, so that StopIteration and SystemExit cross the thread like anything else."""
    try:
        return Value(code.fn(*code.args, **code.kwargs))
    except BaseException as error:
        return Error(error)


class ThreadExecution:
    def __init__(self, future: asyncio.Future[Ended], timeout: float | None, listener: Listener) -> None:
        self._listener = listener
        self._timed_out = False
        loop = asyncio.get_running_loop()
        self._timer = None if timeout is None else loop.call_later(timeout, self._time_out)
        future.add_done_callback(self._end)

    def interrupt(self) -> None:
        """The step sees `is_cancelled()`; nothing else can be done to a thread."""

    def _time_out(self) -> None:
        self._timed_out = True
        self._listener.ended(TimedOut())

    def _end(self, future: asyncio.Future[Ended]) -> None:
        if future.cancelled():
            return  # the pool was shut down before its first line: this process is leaving
        if self._timer is not None:
            self._timer.cancel()
        if not self._timed_out:
            self._listener.ended(future.result())
        self._listener.over()


class ThreadExecutor:
    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="step")

    def start(self, code: Code, *, timeout: float | None, listener: Listener) -> ThreadExecution:
        future = self._pool.submit(code.context.run, _guarded, code)
        return ThreadExecution(asyncio.wrap_future(future), timeout, listener)

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
