"""Where the tasks of a body wait, for reports to people."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from .bodyloop import BodyTask

_LIMIT = 20
_NOT_THEIRS = (str(Path(asyncio.__file__).parent), str(Path(__file__).parents[1]))


def frames_of(tasks: Iterable[BodyTask]) -> tuple[str, ...]:
    """One line per task, at most 20: ``renew (app.py:12) waits for step charge (s3)``."""
    lines = []
    for task in list(tasks)[:_LIMIT]:
        waiter: Any = getattr(task, "_fut_waiter", None)
        what = getattr(waiter, "waits_for", None)
        line = where_of(task.get_coro()) or task.get_name()
        lines.append(f"{line} waits for {what}" if what else line)
    return tuple(lines)


def where_of(coro: Any) -> str:
    """The innermost frame of a coroutine that is the user's own: ``renew (app.py:12)``."""
    found: FrameType | None = None
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "ag_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(_NOT_THEIRS):
            found = frame
        coro = getattr(coro, "cr_await", None) or getattr(coro, "ag_await", None)
    if found is None:
        return ""
    code = found.f_code
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{found.f_lineno})"
