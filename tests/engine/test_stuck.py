"""A body that does not come to rest right after a step that ran here is refused for what it is."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from tests.engine.kit import Stage
from worker import Workflows
from worker.runtime import knowledge
from worker.runtime.body import Body

wf = Workflows()


@wf.step
async def marks() -> None: ...


@wf.workflow
async def spins_after_a_step() -> None:
    await marks()
    while True:
        pass


async def test_a_body_stuck_on_a_result_it_was_advanced_on_parks_its_run(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(knowledge, "Body", partial(Body, stuck_after=0.2))
    async with Stage(redis_url, wf) as stage:
        run_id = await stage.start(spins_after_a_step)
        worker = stage.process()
        with caplog.at_level(logging.WARNING, "worker.session"):
            await worker.intake.take()
            await worker.rest()
        (refused,) = [record for record in caplog.records if record.message.startswith("run ")]
        assert (refused.message, refused.reason) == ("run parked", "body_stuck")  # type: ignore[attr-defined]
        assert "session failed" not in caplog.messages
        assert (await stage.read(run_id)).record["parked"] == b"body_stuck"
        await worker.close()
