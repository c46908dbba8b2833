"""The worker processes of ``worker demo``: started, listened to, killed, and none left behind."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from ..settings import PREFIX
from .commands import Failure
from .reload import PARENT

NAMESPACE = "demo"
LEASE_SECONDS = 3
_PACKAGES = str(Path(__file__).resolve().parents[2])
_TOLD = ("demo", "worker.intake", "worker.session", "worker.delivery", "worker.keeper")  # loggers shown


class Member:
    """One worker process."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.port = 0  # of its endpoint, once it has said so
        self._process = process
        self._ready = threading.Event()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._tail: list[str] = []
        self._reader = threading.Thread(target=self._read, name=f"log of {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def started(self) -> None:
        """Wait until it takes work. Raises Failure when it ends instead."""
        while not self._ready.is_set():
            if self._process.poll() is not None:
                self._reader.join(1)
                said = "\n".join(self._tail[-20:])
                raise Failure(f"worker {self.name} ended with code {self._process.returncode}:\n{said}")
            await asyncio.sleep(0.02)

    def kill(self) -> None:
        """As a machine dies: nothing is handed back."""
        self._process.kill()
        self._process.wait()
        self._reader.join(1)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._tail.append(line.rstrip())
            try:
                record = json.loads(line)
            except ValueError:
                continue
            self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        if record.get("logger") == "worker.endpoint" and "port" in record:
            self.port = record["port"]
        if record.get("message") == "worker started":
            self._ready.set()
        if record.get("level") in ("error", "critical"):
            self.lines.put(
                f"worker {self.name}: {record.get('message')} {record.get('exception', '')}".rstrip()
            )
        elif record.get("logger") in _TOLD:
            more = " ".join(f"{key}={record[key]}" for key in ("row", "step", "number") if record.get(key))
            self.lines.put(f"worker {self.name}: {record['message']} {more}".rstrip())


class Fleet:
    """A context manager: leaving it ends every process it has started."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.members: list[Member] = []

    async def start(self, *names: str) -> None:
        for name in names:
            self.members.append(Member(name, self._spawn()))
        for member in self.members:
            await member.started()

    def by_pid(self, pid: int) -> Member:
        return next(member for member in self.members if member.pid == pid)

    def log_lines(self) -> list[str]:
        """What the workers have logged since the last call."""
        lines = []
        for member in self.members:
            while not member.lines.empty():
                lines.append(member.lines.get())
        return lines

    def _spawn(self) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        paths = [_PACKAGES, *filter(None, [kept.get("PYTHONPATH")])]
        environment = {
            **kept,
            "WORKFLOW_REDIS_URL": self._url,
            "WORKFLOW_NAMESPACE": NAMESPACE,
            "WORKFLOW_INLINE_OWNERSHIP_LEASE_SECONDS": str(LEASE_SECONDS),
            "PYTHONHASHSEED": "0",
            PARENT: str(os.getpid()),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        # -P: whatever is called worker.py where the demo is started must not be found. A session of its
        # own: Ctrl-C reaches the demo alone, which then ends its workers in order.
        command = [sys.executable, "-P", "-m", "worker.cli.main", "run", "worker.demo:wf"]
        return subprocess.Popen(
            [*command, "-c", "4", "--metrics-port", "0", "--drain-timeout", "1"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # Nothing of theirs is kept, and an impatient second Ctrl-C must find nothing left to wait for.
        for member in self.members:
            member.kill()


def pid_of(worker_id: str) -> int:
    """The process id in a worker's id, ``<host>-<pid>-<random>``."""
    return int(worker_id.rsplit("-", 2)[1])
