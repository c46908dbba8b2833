"""Counters and log texts that several places need."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.dispatch import Row
from ..core.plan import Dispatched
from ..core.records import Failed, unpack
from ..sdk.values import decode_failure, describe
from .telemetry import Telemetry


def count_rows(telemetry: Telemetry, rows: Sequence[Dispatched]) -> None:
    """Rows of one pass, committed or without anything to write. The backstop counters move by 0 or 1 per
    pass, however many steps."""
    seen = {each.row for each in rows}
    for each in rows:
        telemetry.dispatch_rows.labels(each.row.value).inc()
        if each.row is Row.OWNED_RECOVERY:
            telemetry.inline_owned_recoveries.inc()
    if Row.BACKSTOP in seen:
        telemetry.inline_backstop_wakes_armed.inc()
    if Row.QUEUE_BACKSTOP in seen:
        telemetry.queue_backstop_wakes_armed.inc()


def failure_text(data: bytes) -> str:
    """What a `Failed` record says, in one line for a log."""
    failed = unpack(Failed, data)
    return f"{failed.code}: {describe(decode_failure(failed.failure))}" if failed.failure else failed.code
