"""`async def` steps: a task on the worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from .base import Ended, Error, Interrupted, TimedOut, Value


async def _guarded(fn: Callable[..., Any], args: Any, kwargs: Any) -> Ended:
    """A task must not die of SystemExit or KeyboardInterrupt: asyncio would end the loop with it."""
    try:
        return Value(await fn(*args, **kwargs))
    except BaseException as error:
        return Error(error)


class AsyncExecution:
    def __init__(self, task: asyncio.Task[Ended], timeout: float | None) -> None:
        self._task = task
        self._timeout = timeout
        self._interrupted = False

    async def ended(self) -> Ended:
        done, _ = await asyncio.wait({self._task}, timeout=self._timeout)
        if not done:
            self._task.cancel()  # its `finally` may take its time: see `released`
            return TimedOut()
        if self._interrupted:
            return self._stopped()
        return self._result()

    def interrupt(self) -> None:
        self._interrupted = True
        self._task.cancel()

    async def released(self) -> None:
        await asyncio.wait({self._task})

    def _stopped(self) -> Ended:
        """Code that ended all the same after it was asked to stop has its end recorded."""
        result = self._result()
        if isinstance(result, Error) and isinstance(result.error, asyncio.CancelledError):
            return Interrupted()
        return result

    def _result(self) -> Ended:
        if self._task.cancelled():  # before its first line ran
            return Interrupted() if self._interrupted else Error(asyncio.CancelledError())
        return self._task.result()


class AsyncExecutor:
    def start(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, *, context: Context, timeout: float | None
    ) -> AsyncExecution:
        loop = asyncio.get_running_loop()
        task = loop.create_task(_guarded(fn, args, kwargs), context=context, name="step")
        return AsyncExecution(task, timeout)

    async def close(self) -> None:
        """Nothing outlives its execution."""
