"""`python -m tests.acceptance.runner MODULE:REGISTRY CONCURRENCY QUEUE,...`: one worker process.

SIGTERM and SIGINT drain it; a second one ends it at once.
"""

import asyncio
import importlib
import logging
import os
import signal
import sys

from worker.runtime.worker import Worker
from worker.settings import Settings


class _Lines(logging.Formatter):
    """Message, then the extra fields: what the tests look for."""

    _plain = set(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in self._plain}
        return f"{super().format(record)} {extra}"


def main(target: str, concurrency: str, queues: str) -> int:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    module, _, registry = target.partition(":")
    worker = Worker(
        getattr(importlib.import_module(module), registry),
        Settings.load(),
        queues=queues.split(","),
        concurrency=int(concurrency),
    )
    asked = 0

    def stop(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            os._exit(1)
        worker.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return asyncio.run(worker.run())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
