"""``worker dev``: the worker in a child process, started again whenever a source file changes."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

import click

from ..addresses import resolve

_LOOK = 0.5  # seconds between two looks
# Seconds before a killed worker is started again: one that is killed at once must not spin.
_FIRST_PAUSE, _LONGEST_PAUSE = 1, 30
PARENT = "STEPFLEET_PARENT"  # tells a child process whose end is its own


def supervise(url: str) -> int:
    """Run this very command without reload in a child until Ctrl-C; answers the exit code. The embedded
    server of `url` is started here, so that it outlives every child."""
    _, server = resolve(url)
    supervisor = _Supervisor(url)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, supervisor.stop)
    try:
        return supervisor.run()
    finally:
        if server is not None:
            server.stop()


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """In a child of `supervise` or of the demo: leave when the parent is gone, however it went."""
    # Taken out: what this process starts has another parent.
    parent = int(os.environ.pop(PARENT, "0"))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os.kill(os.getpid(), number)

    if parent:
        threading.Thread(target=watch, name="parent-watch", daemon=True).start()


class _Supervisor:
    def __init__(self, url: str) -> None:
        self._arguments = [sys.executable, *sys.orig_argv[1:], "--no-reload"]
        self._environment = {**os.environ, "WORKFLOW_REDIS_URL": url, PARENT: str(os.getpid())}
        self._stopping = False
        self._pause = 0  # seconds, the last one taken; 0: none since the code changed
        self._child: subprocess.Popen[bytes] | None = None

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C reaches this process alone; the child is told once, or twice to leave at once."""
        self._stopping = True
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def run(self) -> int:
        while True:
            before, began = _sources(), time.monotonic()
            child = self._start()
            self._wait_for_change(before, child)
            if self._stopping:
                return _exit_code(child.wait())
            if child.poll() is None:
                click.echo("worker dev: a source file changed, restarting", err=True)
                child.terminate()
                child.wait()
            elif child.returncode < 0:  # not by its code: a change is not what would help
                self._pause = next_pause(self._pause, time.monotonic() - began)
                self._rest(before, -child.returncode)
            else:
                click.echo(f"worker dev: ended with code {child.returncode}; waiting for a change", err=True)
                self._wait_for_change(before, None)
            if self._stopping:
                return _exit_code(child.returncode)

    def _start(self) -> subprocess.Popen[bytes]:
        # A session of its own: the terminal's Ctrl-C must not reach it besides ours.
        child = self._child = subprocess.Popen(self._arguments, env=self._environment, start_new_session=True)
        if self._stopping:  # asked for when there was no child to tell
            child.terminate()
        return child

    def _rest(self, before: dict[str, float], death: int) -> None:
        click.echo(
            f"worker dev: the worker was ended by a signal ({signal.strsignal(death)}), "
            f"restarting in {self._pause} s, or when a source file changes",
            err=True,
        )
        if self._wait_for_change(before, None, seconds=self._pause):
            click.echo("worker dev: a source file changed, restarting", err=True)

    def _wait_for_change(
        self, before: dict[str, float], child: subprocess.Popen[bytes] | None, *, seconds: float = math.inf
    ) -> bool:
        """Until a source changes (True: the next pause is short again), `child` ends, `seconds` have passed,
        or it is time to stop."""
        over = time.monotonic() + seconds
        while not self._stopping:
            if _sources() != before:
                self._pause = 0  # it is other code now
                return True
            if (child is not None and child.poll() is not None) or time.monotonic() >= over:
                break
            time.sleep(_LOOK)
        return False


def next_pause(last: int, lived: float) -> int:
    """Seconds to rest after a worker that was killed `lived` seconds after its start; `last`: seconds after
    the one before it, 0 for none."""
    return _FIRST_PAUSE if lived > _LONGEST_PAUSE or not last else min(2 * last, _LONGEST_PAUSE)


def _exit_code(returned: int) -> int:
    """As a shell says it: 128 and the signal."""
    return returned if returned >= 0 else 128 - returned


def _sources() -> dict[str, float]:
    """Python files below the working directory and when they changed; hidden folders are left out."""
    found = {}
    for folder, names, files in os.walk("."):
        names[:] = [name for name in names if not name.startswith(".") and name != "__pycache__"]
        for file in files:
            if file.endswith(".py"):
                path = os.path.join(folder, file)
                try:
                    found[path] = os.stat(path).st_mtime
                except OSError:
                    continue  # it has gone in between
    return found
