"""A long log is read in pages; pages of two servers do not belong together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import orjson

from tests.engine.kit import Stage
from worker import BaseHook, Workflows
from worker.core.records import HookReceived, pack

wf = Workflows()
MARKS = 250  # two pages of log


@dataclass
class Go(BaseHook):
    word: str


@wf.step
async def mark(n: int) -> int:
    return n


@wf.workflow
async def long_then_waits() -> str:
    async with Go.wait() as hook:
        for n in range(MARKS):
            await mark(n)
        return (await hook).word


async def test_a_reading_that_spans_a_reconnect_starts_over(redis_url: str) -> None:
    async with Stage(redis_url, wf) as stage:
        first = stage.process()
        run_id = await stage.start(long_then_waits)
        await first.intake.take()
        await first.leave()
        await stage.resume(run_id, "r1", pack(HookReceived(orjson.dumps({"word": "go"}), "r1")))

        reader = stage.process()
        calls = reader.ports.calls
        answers = stage.world.server
        # Another server answers from the second page on.
        reader.ports.server = lambda: answers if calls.count("run_read") < 1 else "another"  # type: ignore[method-assign]

        async def over() -> bool:
            return await stage.finished(run_id)

        await reader.work(over)
        await reader.leave()
        assert Counter(calls)["run_read"] == 2 + 2, "both pages, twice"
        events = await stage.events(run_id)
        assert events[-1].type.value == "run_completed"
        assert len([e for e in events if e.type.value == "step_created"]) == MARKS
