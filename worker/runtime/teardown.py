"""Dropping a live body from memory.

Letting go of a suspended coroutine runs its ``finally`` blocks: if not here, then when the garbage
collector finds it, in whatever thread that is. So it is done here, on the loop's thread, newest task
first, in each task's own context, while every call into the SDK raises `BodyDropped` and records
nothing. The code in ``finally`` and ``except BaseException`` may run, but decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .bodyloop import BodyLoop, BodyTask, log
from .frames import where_of
from .watchdog import Watch

ATTEMPTS = 5  # how often a coroutine that awaits again is closed again

# Coroutines that could not be closed. They stay referenced so that they never run again.
survivors: list[Any] = []


def tear_down(loop: BodyLoop) -> int:
    """Close everything that runs on `loop`; answers how many tasks survived it."""
    tasks = loop.pending()
    loop.start_dropping()
    left: list[str] = []

    def close(_: Watch) -> None:
        for task in reversed(tasks):
            unclosed = _close_task(loop, task)
            if unclosed:
                survivors.extend((task, *unclosed))
                left.append(where_of(unclosed[0]) or task.get_name())
        for generator in loop.generators:
            _close_generator(loop, generator)

    if tasks or loop.generators:
        loop.drive(close)
    loop.abandoned.clear()
    if left:
        log.warning("a dropped body could not be closed: %s", "; ".join(left))
    return len(left)


def _close_task(loop: BodyLoop, task: BodyTask) -> list[Any]:
    """Close the coroutine of a task and those it awaits; answers the ones that resist."""
    unclosed: list[Any] = [task.get_coro()]
    for _ in range(ATTEMPTS):
        # One that awaits again while it is closed is cut off from those that await it: they end.
        chain = [link for coro in unclosed for link in _chain(coro)]
        for coro in unclosed:
            loop.forget_refusals()
            # "coroutine ignored GeneratorExit", or what its last code raised: nobody is told.
            with suppress(BaseException):
                task.context.run(coro.close)
        unclosed = [coro for coro in chain if not _is_closed(coro)]
        if not unclosed:
            break
    return unclosed


def _chain(coro: Any) -> Iterator[Any]:
    """A coroutine and what it awaits, as far as these are coroutines."""
    while hasattr(coro, "cr_frame"):
        yield coro
        coro = coro.cr_await


def _is_closed(coro: Any) -> bool:
    return coro.cr_frame is None


def _close_generator(loop: BodyLoop, generator: Any) -> None:
    for _ in range(ATTEMPTS):
        loop.forget_refusals()
        with suppress(BaseException):
            generator.aclose().send(None)
        if generator.ag_frame is None:
            return
