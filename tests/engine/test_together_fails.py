"""What befalls a shared call befalls every member alike, and each of them recovers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.engine.kit import Stage
from tests.engine.test_together import (
    OVER,
    WIDE,
    away,
    began,
    queued,
    result,
    step_messages,
    wide,
    wide_and_picky,
)
from tests.engine.test_together import stage as stage
from world_redis.errors import ScriptError, StoreUnavailable
from world_redis.scripts import ScriptCall


@pytest.mark.parametrize("error", [StoreUnavailable, ScriptError])
@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("script", ["step_claim", "append"])
@pytest.mark.parametrize("workflow", [wide, wide_and_picky], ids=["plain", "picky"])
async def test_every_member_of_a_call_that_fails_comes_back(
    stage: Stage, script: str, answered: bool, error: type[Exception], workflow: Any
) -> None:
    run_id = await queued(stage, workflow, *([WIDE] if workflow is wide else []))
    process = away(stage)
    failing = [True]

    async def on_call(call: ScriptCall, was_answered: bool) -> None:
        if call.script == script and was_answered == answered and failing:
            failing.pop()
            raise error("as it happens")

    process.ports.on_call = on_call
    await process.intake.take()
    await process.rest()
    assert await stage.breaches() == []
    assert process.host.slots.taken == 0 and not process.host.flights
    await stage.clock.forward(OVER)
    expected = list(range(WIDE)) if workflow is wide else [-1 if n % 4 == 0 else n for n in range(WIDE)]
    assert await result(stage, run_id) == expected
    assert await step_messages(stage) == 0
    assert max(Counter(began).values()) <= 3


@pytest.mark.parametrize("script", ["step_claim", "append"])
@pytest.mark.parametrize("everybody", [False, True])
async def test_deliveries_cancelled_while_their_call_is_out(
    stage: Stage, script: str, everybody: bool
) -> None:
    run_id = await queued(stage, wide, WIDE)
    process = away(stage)
    go, there = asyncio.Event(), asyncio.Event()

    async def on_call(call: ScriptCall, was_answered: bool) -> None:
        if call.script == script and not was_answered:
            there.set()
            await go.wait()

    process.ports.on_call = on_call
    await process.intake.take()
    await there.wait()
    tasks = [t for t in process.ports.tasks if t.get_name().startswith("step ")]
    assert len(tasks) == WIDE
    for task in tasks if everybody else tasks[:1]:
        task.cancel()
    await asyncio.sleep(0)
    go.set()
    await process.rest()
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert await stage.breaches() == []
    await stage.clock.forward(OVER)
    assert await result(stage, run_id) == list(range(WIDE))
