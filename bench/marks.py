"""Marks: a line of 16 bytes per finished task, appended to one file by whichever process ran it.

Works for every peer, however many processes it forks, and costs a task two microseconds.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

VARIABLE = "BENCH_MARKS"  # path of the file
_LINE = struct.Struct("=qq")
_files: dict[str, int] = {}


def mark() -> None:
    """Called by the task."""
    path = os.environ[VARIABLE]
    if path not in _files:
        _files[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(_files[path], _LINE.pack(time.monotonic_ns(), os.getpid()))


class Mark(NamedTuple):
    at: int  # ns on the machine's monotonic clock
    pid: int


class Marks:
    """The file as the driver sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @property
    def count(self) -> int:
        return self.path.stat().st_size // _LINE.size

    def read(self) -> list[Mark]:
        return [Mark(*line) for line in _LINE.iter_unpack(self.path.read_bytes())]

    async def reach(self, count: int, *, within: float) -> None:
        """Wait until there are `count` marks. Raises TimeoutError."""
        async with asyncio.timeout(within):
            while self.count < count:  # noqa: ASYNC110 - other processes write
                await asyncio.sleep(0.02)

    def rate(self, *, processes: int = 1) -> float:
        """Marks per second while all `processes` work and the queue is full: the first tenth (they start, and
        what runs at once ends at once) and the last one (they run dry) are left out."""
        marks = self.read()
        seen: set[int] = set()
        for index, each in enumerate(marks):
            seen.add(each.pid)
            if len(seen) >= processes:
                first, last = max(index, len(marks) // 10), len(marks) * 9 // 10
                return (last - first) / ((marks[last].at - marks[first].at) / 1e9)
        # So little work that one process did it all: its rate is what there is to say.
        return (len(marks) - 1) / ((marks[-1].at - marks[0].at) / 1e9)
