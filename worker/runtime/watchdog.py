"""Interrupts code that holds a thread too long.

A body runs on the worker's own thread, so one that never comes to rest stops everything. One
daemon thread per process looks at the *watches* that are armed; when one is over its limit, it
raises `BodyInterrupted` in the watched thread (and again every second, should user code swallow
it). It cannot interrupt a blocking call into C; the worker's stall check ends such a process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import traceback

_TICK = 0.1  # seconds between two looks; the limit is counted in looks, so no clock is read
_AGAIN = 10  # looks between two interruptions of the same watch
_IDLE = 50  # looks without a watch after which the thread goes to sleep


class BodyInterrupted(BaseException):
    """Raised into code that did not come to rest in time."""


class Watch:
    """Watches the thread between `arm` and `disarm`, again and again.

    `BodyInterrupted` may surface anywhere in between, and in `disarm` itself. `fired` says
    afterwards that it was raised, `frames` where the code was.
    """

    def __init__(self, seconds: float) -> None:
        self.armed = False
        self.fired = False
        self.frames: tuple[str, ...] = ()
        self._looks = max(1, round(seconds / _TICK))
        self._seen = 0
        self._thread = 0
        self._lock = threading.Lock()

    def arm(self) -> None:
        self._thread = threading.get_ident()
        self._seen = 0
        self.fired = False
        self.armed = True
        _watchdog().add(self)

    def disarm(self) -> None:
        with self._lock:
            self.armed = False
            if self.fired:
                # Not delivered yet: it must not hit whatever runs next on this thread.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), None)
        _watchdog().watches.discard(self)

    def restart(self) -> None:
        """Count the time from now."""
        self._seen = 0

    def look(self) -> None:
        """Called by the watchdog's thread, every tick."""
        self._seen += 1
        late = self._seen - self._looks
        if late >= 0 and late % _AGAIN == 0:
            self._fire()

    def _fire(self) -> None:
        with self._lock:
            if not self.armed:
                return
            frame = sys._current_frames().get(self._thread)
            if not self.fired and frame is not None:
                stack = traceback.extract_stack(frame)
                self.frames = tuple(f"{f.name} ({f.filename}:{f.lineno})" for f in stack[-8:])
            self.fired = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(BodyInterrupted)
            )


class _Watchdog:
    def __init__(self) -> None:
        self.watches: set[Watch] = set()  # that are armed
        self._asleep = True
        self._called = threading.Event()
        threading.Thread(target=self._run, name="body-watchdog", daemon=True).start()

    def add(self, watch: Watch) -> None:
        self.watches.add(watch)
        if self._asleep:
            self._called.set()

    def _run(self) -> None:
        while True:
            self._called.wait()
            self._called.clear()
            self._asleep = False
            self._look()
            self._asleep = True
            if self.watches:  # added before this thread was seen to sleep
                self._called.set()

    def _look(self) -> None:
        """Look at what is armed, tick by tick, until nothing has been for a while."""
        tick = threading.Event()  # never set: its wait is the pause between two looks
        idle = 0
        while idle < _IDLE:
            tick.wait(_TICK)
            watches = list(self.watches)
            idle = 0 if watches else idle + 1
            for watch in watches:
                watch.look()


_current: _Watchdog | None = None
_starting = threading.Lock()


def _watchdog() -> _Watchdog:
    global _current
    if _current is None:
        with _starting:
            if _current is None:
                _current = _Watchdog()
    return _current


def _forget() -> None:
    """A forked child has no threads, and perhaps a lock that one of them held."""
    global _current, _starting
    _current, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
