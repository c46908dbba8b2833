"""A payload that does not fit is told once, by the worker that met it, and the run waits on."""

from __future__ import annotations

import pytest

from tests.engine import app
from tests.engine.kit import Process, Stage
from worker.core.records import HookReceived, pack
from worker.runtime.telemetry import Telemetry
from world_redis.events import EventType

WRONG, RIGHT = b'{"wrod":"go"}', b'{"word":"go"}'


async def test_a_wrong_payload_is_logged_and_counted_once_and_fails_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    first = counting(stage)
    run_id = await stage.start(app.words, 2)
    await work(first)
    for resume_id, payload in (("r1", WRONG), ("r2", RIGHT)):
        assert await stage.resume(run_id, resume_id, pack(HookReceived(payload, resume_id)))
        await work(first)
    (told,) = [record for record in caplog.records if "passed over" in record.getMessage()]
    assert "payload of hook Go.word: Field required" in told.getMessage()
    assert (told.__dict__["run_id"], told.__dict__["hook"]) == (run_id, "h1")
    assert passed_over(first) == 1
    await first.leave()

    second = counting(stage)
    assert await stage.resume(run_id, "r3", pack(HookReceived(RIGHT, "r3")))
    await work(second)
    events = await stage.events(run_id)
    assert events[-1].type is EventType.RUN_COMPLETED
    assert [e.type for e in events].count(EventType.HOOK_RECEIVED) == 3, "what was sent is kept in the log"
    assert passed_over(second) == 0, "a replay tells nothing twice"
    assert await stage.breaches() == []
    await second.leave()


def counting(stage: Stage) -> Process:
    process = stage.process()
    process.host.telemetry = Telemetry()
    return process


async def work(process: Process) -> None:
    """Take what is there, and come to rest."""
    await process.intake.take()
    await process.rest()


def passed_over(process: Process) -> float:
    registry = process.host.telemetry.registry
    return registry.get_sample_value("workflow_passed_over_payloads_total") or 0.0
