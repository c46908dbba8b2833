"""A step nobody waits for any more: the row that a body built anew meets, as an operator reads it."""

from __future__ import annotations

import asyncio
import contextlib

from tests.acceptance.metrics import Scrape, scrape_port
from tests.engine import app
from tests.engine.app import Go, mark
from tests.engine.kit import Process, Stage
from worker import Workflows
from worker.core.records import HookReceived, pack
from worker.runtime.endpoint import Endpoint
from worker.runtime.telemetry import Telemetry
from world_redis.events import Answer
from world_redis.runs import Runs

wf = Workflows()
wf.include(app.wf)


@wf.workflow
async def gives_up() -> str:
    """Its step is queued where nobody serves."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            await mark.with_options(queue="other")("a")
    async with Go.wait() as hook:
        return (await hook).word


async def test_a_withdrawn_step_is_counted_where_a_body_is_built_anew_and_left_alone(redis_url: str) -> None:
    async with Stage(redis_url, wf) as stage:
        await _given_up_and_rebuilt(stage)


async def _given_up_and_rebuilt(stage: Stage) -> None:
    first = stage.process()
    run_id = await stage.start(gives_up)
    await _work(first)
    await stage.clock.forward(60_000)
    await _work(first)
    assert await _states(stage, run_id) == ["withdrawn"]
    await first.leave()

    second = stage.process()
    second.host.telemetry = Telemetry()
    assert await Runs(stage.world).heal(run_id, (await stage.read(run_id)).head) is Answer.OK
    await _work(second)
    seen = await _scraped(second)
    assert seen.by("dispatch_rows_total", "row") == {"withdrawn": 1}
    assert await _states(stage, run_id) == ["withdrawn"]

    assert await stage.resume(run_id, "r1", pack(HookReceived(b'{"word":"go"}', "r1")))
    await _work(second)
    assert await stage.finished(run_id)
    assert await stage.breaches() == []
    await second.leave()


async def _work(process: Process) -> None:
    """Take what is there, and come to rest."""
    await process.intake.take()
    await process.rest()


async def _states(stage: Stage, run_id: str) -> list[str]:
    table = (await stage.read(run_id)).table
    assert table is not None
    return [step.state for step in table.steps]


async def _scraped(process: Process) -> Scrape:
    endpoint = Endpoint(process.host.telemetry, alive=lambda: "", ready=lambda: "", port=0, host="127.0.0.1")
    endpoint.start()
    try:
        return await scrape_port(endpoint.port)
    finally:
        endpoint.stop()
