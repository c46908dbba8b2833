"""Peers: one file each, doing the same little with another library. Each is skipped when it is not installed.

A peer's file is imported by its own worker process and by the process that fills its queue, never by the
driver: it may import its library without asking. It has ``async def fill(count)``; its worker is started by
the arguments in `PEERS`. Settings are the library's own defaults, one worker process.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    package: str  # what must be installed
    does: str  # what is counted per second
    module: str
    worker: tuple[str, ...]  # arguments of Python; "{url}" is the server

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


_TASK = "trivial tasks"

PEERS = (
    Peer("RQ", "rq", _TASK, "bench.peers.with_rq", ("-m", "rq.cli", "worker", "-q", "-u", "{url}")),
    Peer(
        "Celery",
        "celery",
        _TASK,
        "bench.peers.with_celery",
        ("-m", "celery", "-A", "bench.peers.with_celery", "worker", "-c", "1", "-l", "warning"),
    ),
    Peer(
        "streaq",
        "streaq",
        _TASK,
        "bench.peers.with_streaq",
        ("-m", "streaq", "run", "bench.peers.with_streaq:worker"),
    ),
    Peer("saq", "saq", _TASK, "bench.peers.with_saq", ("-m", "saq", "bench.peers.with_saq.settings")),
    Peer(
        "DBOS on SQLite",
        "dbos",
        "three-step runs",
        "bench.peers.with_dbos",
        ("-m", "bench.peers.with_dbos"),
    ),
)
