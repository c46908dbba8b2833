"""What a body must not do, noticed even where it goes past its loop.

The loop of a body refuses sockets, threads and executors. Code that asks the interpreter directly
(``requests.get``, ``threading.Thread``, ``time.sleep``) never meets that loop; it meets an audit hook.

An audit hook sees every event of the process and stays until the process ends. So there is one, it
begins with the cheapest question there is, and it acts only where a body's loop is the running one.

CPython tells of started threads from 3.12 on, of ``time.sleep`` from 3.13 on.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
from asyncio import events
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from .bodyloop import BodyLoop

log = logging.getLogger("worker.body")

WATCHED = {
    # audit event → the call as people know it
    "socket.connect": "socket.connect()",
    "socket.sendto": "socket.sendto()",
    "socket.getaddrinfo": "socket.getaddrinfo()",
    "socket.gethostbyname": "socket.gethostbyname()",
    "subprocess.Popen": "subprocess.Popen()",
    "os.system": "os.system()",
    "os.fork": "os.fork()",
    "os.posix_spawn": "os.posix_spawn()",
    "_thread.start_new_thread": "threading.Thread.start()",
    "_thread.start_joinable_thread": "threading.Thread.start()",  # from 3.13 on
    "time.sleep": "time.sleep()",
}
_MAX_SITES = 1000

_NOBODYS = (f"{Path(os.__file__).parent}{os.sep}", f"{Path(__file__).parents[1]}{os.sep}", "<frozen ")
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib"))


@dataclass(slots=True)
class Guard:
    """What happens to such a call: refused when `strict`, else counted and logged once per place."""

    strict: bool
    count: Callable[[str], None]  # takes the call as people know it
    _told: set[tuple[str, str]] = field(default_factory=set)

    def meet(self, call: str, frame: FrameType) -> None:
        """Raises RuntimeError when strict."""
        place = _place_of(frame)
        text = (
            f"a workflow body called {call} at {place}: a body is run again and must do the same every "
            f"time, so what reaches outside or waits belongs in a step (and a pause is worker.sleep())"
        )
        if self.strict:
            raise RuntimeError(text)
        self.count(call)
        if (call, place) not in self._told and len(self._told) < _MAX_SITES:
            self._told.add((call, place))
            log.warning("%s", text)


_guard: Guard | None = None
_hooked = False


def install(*, strict: bool, count: Callable[[str], None]) -> None:
    """Watch the bodies of this process from now on; a later call replaces `strict` and `count`.

    Called by a worker when it starts. `strict` raises into the body (tests, ``worker dev``), otherwise
    the call goes through, is counted and logged.
    """
    global _guard, _hooked
    _guard = Guard(strict, count)
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hook)


def _hook(
    event: str,
    args: tuple[Any, ...],
    # Kept as defaults: when the interpreter ends, it still asks, and the module's names are gone.
    watched: Container[str] = WATCHED,
    running: Callable[[], object] = events._get_running_loop,
    body_loop: type[BodyLoop] = BodyLoop,
) -> None:
    if event not in watched:
        return
    if isinstance(running(), body_loop) and _guard is not None:
        _guard.meet(WATCHED[event], sys._getframe(1))


def _place_of(frame: FrameType) -> str:
    """``app.py:12``: the innermost line of the user's own code; where that is installed like a library,
    the line of whichever library is nearest to the body."""
    nearest = "an unknown place"
    found: FrameType | None = frame
    while found is not None and found.f_code is not BodyLoop.turn.__code__:
        name = found.f_code.co_filename
        if name.startswith(_LIBRARIES):  # first: they may be installed below the standard library
            nearest = f"{name}:{found.f_lineno}"
        elif not name.startswith(_NOBODYS):
            return f"{name}:{found.f_lineno}"
        found = found.f_back
    return nearest
