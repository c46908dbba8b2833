"""A body is rebuilt when the log went another way than it bet on; so it bets only when it is alone."""

from __future__ import annotations

from tests.acceptance.metrics import scrape_port
from tests.engine import app
from tests.engine.kit import Stage
from worker.runtime.endpoint import Endpoint
from worker.runtime.telemetry import Telemetry
from world_redis.events import EventType

WIDE = 30


async def test_a_wide_fan_out_shared_by_two_processes_rebuilds_no_body(redis_url: str) -> None:
    """Nearly every inline end finds queued ends in front of it: they are read, not bet against."""
    async with Stage(redis_url, app.wf) as stage:
        home, other = stage.process(concurrency=3), stage.process(concurrency=3)
        home.host.telemetry = Telemetry()
        run_id = await stage.start(app.fan_wide, WIDE)

        async def over() -> bool:
            return await stage.finished(run_id)

        await home.intake.take()
        while not await over():
            for process in (other, home):
                await process.intake.take()
            await home.rest()
            await other.rest()
        endpoint = Endpoint(home.host.telemetry, alive=lambda: "", ready=lambda: "", port=0, host="127.0.0.1")
        endpoint.start()
        seen = await scrape_port(endpoint.port)
        endpoint.stop()
        events = await stage.events(run_id)
        modes = {e.extra.rsplit(":", 1)[1] for e in events if e.type is EventType.STEP_STARTED}
        assert modes == {"inline", "queue"}
        assert seen("replays_total") == 0
        assert seen("transitions_total", answer="stale") == 0
        await home.leave()
        await other.leave()
