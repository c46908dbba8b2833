"""An event loop whose clock stands still until somebody moves it.

When nothing is ready to run it does not wait: it asks `idle` what happens next. So every pause, timer
and time-out of the runtime is virtual, whoever asked for it and by whatever way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Owner = object  # a simulated worker


class _Selector:
    """What asyncio waits with: it never waits."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._idle = idle

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._idle()
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. `owner` of a task: the worker whose code made it."""

    def __init__(self, idle: Callable[[], None]) -> None:
        super().__init__()
        self.clock = 0.0  # seconds; `idle` moves it
        self._clock_resolution = 1e-6  # rounding must not leave a timer that is due but never runs
        self._selector = _Selector(idle)
        self.making: Owner | None = None  # owner of tasks made outside of any task
        self.owners: dict[asyncio.Task[Any], Owner | None] = {}
        self.errors: list[str] = []  # what a task died of
        self.unwinding: list[asyncio.Task[Any]] = []  # of workers that were killed
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self.clock

    def next_timer(self) -> float | None:
        """When the earliest timer is due, in seconds."""
        due = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return min(due) if due else None

    def stop_asking(self) -> None:
        """The schedule is over: what is left unwinds."""
        self._selector = _Selector(lambda: None)

    def tasks_of(self, owner: Owner) -> list[asyncio.Task[Any]]:
        """In the order they were made."""
        return [task for task, whose in self.owners.items() if whose is owner]

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        current = asyncio.current_task(loop)
        self.owners[task] = self.making if current is None else self.owners.get(current)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.owners.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.errors.append(f"task {task.get_name()!r} died of {error!r}")

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, asyncio.CancelledError):  # of a worker that was killed
            self.errors.append(f"{context.get('message')}: {error!r}")

    def _process_events(self, events: list[Any]) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """Nobody has to wake a loop that never sleeps."""
