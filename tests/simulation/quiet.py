"""What must not differ from one run of a schedule to the next, or pass unseen."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace

from world_redis import ids


@contextmanager
def seeded_ids(entropy: Random) -> Iterator[None]:
    """Marks and with them message ids come from the seed."""
    module = vars(ids)
    real = {name: module[name] for name in ("os", "_drawn")}
    module.update(os=SimpleNamespace(urandom=entropy.randbytes), _drawn=[])
    try:
        yield
    finally:
        module.update(real)


class _Catcher(logging.Handler):
    def __init__(self, problems: list[str], expected: Collection[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems, self._expected = problems, expected

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text in self._expected:
            return
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self._problems.append(f"logged: {text}")


@contextmanager
def caught_logs(problems: list[str], expected: Collection[str] = ()) -> Iterator[None]:
    """What the runtime logs as an error is one, unless it is expected."""
    logger, handler = logging.getLogger("worker"), _Catcher(problems, expected)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)  # so that every record is made
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
