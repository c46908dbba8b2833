"""Dropping a live body from memory.

Letting go of a suspended coroutine runs its ``finally`` blocks: if not here, then when the garbage
collector finds it, in whatever thread that is. So it is done here, on the loop's thread, newest task
first, in each task's own context, while every call into the SDK raises `BodyDropped` and records
nothing. The code in ``finally`` and ``except BaseException`` may run, but decides nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .bodyloop import BodyLoop, BodyTask, log
from .frames import frames_of

ATTEMPTS = 5  # how often a coroutine that awaits again is closed again

# Coroutines that could not be closed. They stay referenced so that they never run again.
survivors: list[BodyTask] = []


def tear_down(loop: BodyLoop) -> int:
    """Close everything that runs on `loop`; answers how many coroutines survived it."""
    tasks = loop.pending()
    loop.start_dropping()
    left: list[BodyTask] = []
    with loop.current():
        for task in reversed(tasks):
            if not _close_task(loop, task):
                left.append(task)
        for generator in [*loop.generators, *loop.abandoned]:
            _close_generator(loop, generator)
    loop.abandoned.clear()
    if left:
        survivors.extend(left)
        log.warning("a dropped body could not be closed: %s", "; ".join(frames_of(left)))
    return len(left)


def _close_task(loop: BodyLoop, task: BodyTask) -> bool:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro: Any = task.get_coro()
    for _ in range(ATTEMPTS):
        loop.forget_refusals()
        # "coroutine ignored GeneratorExit", or what its last code raised: nobody is told.
        with suppress(BaseException):
            task.context.run(coro.close)
        if _is_closed(coro):
            return True
    return False


def _is_closed(coro: Any) -> bool:
    return getattr(coro, "cr_frame", getattr(coro, "gi_frame", None)) is None


def _close_generator(loop: BodyLoop, generator: Any) -> None:
    for _ in range(ATTEMPTS):
        loop.forget_refusals()
        with suppress(BaseException):
            generator.aclose().send(None)
        if generator.ag_frame is None:
            return
