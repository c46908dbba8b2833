"""Log output, set up by the command line alone.

The library writes to ``logging.getLogger("worker...")`` and configures nothing when it is imported. Only
`configure`, called by the command line, adds a handler, and only when the application has none.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import Processor

from ..sdk.calls import ReplayFilter

_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure(level: str = "INFO", *, stream: TextIO | None = None, json: bool | None = None) -> bool:
    """Write all records, the application's included, to `stream` (stderr): text for a terminal, one JSON
    object a line otherwise (`json` decides when given). False: the application has its own handlers, and
    nothing was changed."""
    root = logging.getLogger()
    if root.handlers:
        return False
    out = sys.stderr if stream is None else stream
    as_json = not out.isatty() if json is None else json
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(as_json))
    handler.addFilter(ReplayFilter())  # a replayed body says nothing twice, nor do the libraries it calls
    root.addHandler(handler)
    root.setLevel(level)
    if not structlog.is_configured():
        structlog.configure(
            processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )
    return True


def _formatter(as_json: bool) -> logging.Formatter:
    last: list[Processor] = (
        [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str),
        ]
        if as_json
        else [structlog.dev.ConsoleRenderer()]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder()],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
