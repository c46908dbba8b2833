"""`async def` steps: a task on the worker's loop."""

from __future__ import annotations

import asyncio

from .base import Code, Ended, Error, Interrupted, Listener, TimedOut, Value


class AsyncExecution:
    def __init__(self, code: Code, timeout: float | None, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        self._listener = listener
        self._over = False
        self._timed_out = False
        self._interrupted = False
        self._timer = None if timeout is None else loop.call_later(timeout, self._time_out)
        self._task = loop.create_task(self._run(code), context=code.context, name="step")

    async def _run(self, code: Code) -> None:
        """A task must not die of SystemExit or KeyboardInterrupt: asyncio would end the loop with it."""
        ended: Ended
        try:
            ended = Value(await code.fn(*code.args, **code.kwargs))
        except BaseException as error:
            ended = Error(error)
        self._end(ended)

    def interrupt(self) -> None:
        self._interrupted = True
        self._cancel()

    def _time_out(self) -> None:
        self._timed_out = True
        self._cancel()  # its `finally` may take its time: that is told by `over`
        self._listener.ended(TimedOut())

    def _cancel(self) -> None:
        if self._task.cancel():
            self._task.add_done_callback(self._look)

    def _look(self, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first line never comes to its last."""
        if not self._over:
            self._end(Error(asyncio.CancelledError()))

    def _end(self, ended: Ended) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if not self._timed_out:
            self._listener.ended(Interrupted() if self._was_stopped(ended) else ended)
        self._listener.over()

    def _was_stopped(self, ended: Ended) -> bool:
        """Code that ended all the same after it was asked to stop has its end recorded."""
        return (
            self._interrupted and isinstance(ended, Error) and isinstance(ended.error, asyncio.CancelledError)
        )


class AsyncExecutor:
    def start(self, code: Code, *, timeout: float | None, listener: Listener) -> AsyncExecution:
        return AsyncExecution(code, timeout, listener)

    async def close(self) -> None:
        """Nothing outlives its execution."""
