"""The arguments of an inline step are read while its claim is on its way; its code waits for the claim.

Time spent on reading makes no answer late: the keeper renews meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from tests.engine.kit import LEASE, Clock, Process, Stage
from worker import Workflows
from world_redis.events import EventType
from world_redis.runs import Runs
from world_redis.scripts import ScriptCall

wf = Workflows()
did: list[str] = []
clocks: list[Clock] = []  # of the processes whose readings take longer than a lease


@dataclass
class Parcel:
    """Its reading is seen, and may fail or take its time."""

    grams: int

    def __post_init__(self) -> None:
        if did[-1:] != ["reads"]:  # one reading makes it more than once
            did.append("reads")
        if "claims" in did and self.grams == 13:
            raise ValueError("nobody carries 13 grams")
        for clock in clocks:
            clock.ms += int(LEASE * 1000) + 1  # the server's stands: nobody's lease lapses


@wf.step
async def weigh(parcel: Parcel) -> int:
    did.append("weighs")
    return parcel.grams


@wf.workflow
async def ship(grams: int) -> int:
    return await weigh(Parcel(grams))


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    did.clear()
    clocks.clear()
    async with Stage(redis_url, wf) as ready:
        yield ready


def watched(stage: Stage, before: Callable[[], Awaitable[object]] | None = None) -> Process:
    """A worker that notes when its first claim goes out, after `before`, and when it hears the answer."""
    process = stage.process()

    async def on_call(call: ScriptCall, answered: bool) -> None:
        if call.script != "append" or "answer" in did:
            return
        if answered:
            did.append("answer")
            return
        if before is not None:
            await before()
        did[:] = ["claims"]

    process.ports.on_call = on_call
    return process


async def test_arguments_are_read_once_and_before_the_answer(stage: Stage) -> None:
    run_id = await stage.start(ship, 5)
    await watched(stage).work(lambda: stage.finished(run_id))
    assert did == ["claims", "reads", "answer", "weighs"]


async def test_what_was_read_for_a_claim_that_is_refused_is_not_run(stage: Stage) -> None:
    run_id = await stage.start(ship, 5)
    process = watched(stage, lambda: Runs(stage.world).terminate(run_id, b"", retention_ms=60_000))
    await process.work(lambda: stage.finished(run_id))
    assert did == ["claims", "reads", "answer"]
    assert all(not session._executions._prepared for session in process.intake._sessions.values())
    await process.leave()


async def test_arguments_that_cannot_be_read_fail_the_step_under_its_claim(stage: Stage) -> None:
    run_id = await stage.start(ship, 13)
    await watched(stage).work(lambda: stage.finished(run_id))
    assert did == ["claims", "reads", "answer", "reads"]
    events = [event.type for event in await stage.events(run_id)]
    assert events[-3:] == ["step_started", "step_failed", "run_failed"]


async def test_arguments_that_take_longer_to_read_than_a_lease_start_their_step_once(stage: Stage) -> None:
    run_id = await stage.start(ship, 5)

    async def slow_from_now_on() -> None:
        clocks.append(stage.clock)

    process = watched(stage, slow_from_now_on)
    await process.work(lambda: stage.finished(run_id))
    assert [event.type for event in await stage.events(run_id)].count(EventType.STEP_STARTED) == 1
    await process.leave()
