"""What several places count and log alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from world_redis.events import Answer

from ..core.dispatch import Row
from ..core.ends import StepEnd
from ..core.plan import Dispatched
from ..core.records import Failed, unpack
from ..sdk.values import decode_failure, describe
from .telemetry import Telemetry

log = logging.getLogger("worker.step")

_OWNED = (Row.OWNED_RECOVERY, Row.BACKSTOP, Row.QUEUE_BACKSTOP)  # have counters of their own


def count_rows(telemetry: Telemetry, rows: Sequence[Dispatched]) -> None:
    """Count the rows of one pass, committed or without anything to write. The backstop counters move by 0
    or 1 per pass, however many steps."""
    for each in rows:
        telemetry.dispatch_rows.labels(each.row).inc()
    owned = [each.row for each in rows if each.row in _OWNED]
    if owned:
        telemetry.inline_owned_recoveries.inc(owned.count(Row.OWNED_RECOVERY))
        telemetry.inline_backstop_wakes_armed.inc(Row.BACKSTOP in owned)
        telemetry.queue_backstop_wakes_armed.inc(Row.QUEUE_BACKSTOP in owned)


def tell_end(
    telemetry: Telemetry, step: str, end: StepEnd, verdict: Answer, about: Callable[[], Mapping[str, Any]]
) -> None:
    """Count and log how an execution's end was judged; `about` makes the log fields that name it."""
    status = end.type.value.removeprefix("step_") if verdict is Answer.OK else verdict.value
    telemetry.steps.labels(step, status).inc()
    if verdict is Answer.SUPERSEDED:
        telemetry.superseded.labels("step").inc()
        log.warning("superseded", extra=about())
    elif end.error:
        log.warning("step %s %s", step, status, extra={**about(), "error": end.error})


def failure_text(data: bytes) -> str:
    """What a `Failed` record says, in one line for a log."""
    failed = unpack(Failed, data)
    return f"{failed.code}: {describe(decode_failure(failed.failure))}" if failed.failure else failed.code
