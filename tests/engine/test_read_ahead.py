"""The arguments of an inline step are read while its claim is on its way; its code waits for the claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.engine.kit import PATIENCE, Process, Stage
from worker import Workflows
from world_redis.runs import Runs
from world_redis.scripts import ScriptCall

wf = Workflows()
did: list[str] = []


@dataclass
class Parcel:
    """Its reading is seen, and may fail."""

    grams: int

    def __post_init__(self) -> None:
        did.append(f"reads {self.grams}")
        if "claims" in did and self.grams == 13:
            raise ValueError("nobody carries 13 grams")


@wf.step
async def weigh(parcel: Parcel) -> int:
    did.append(f"weighs {parcel.grams}")
    return parcel.grams


@wf.workflow
async def ship(grams: int) -> int:
    return await weigh(Parcel(grams))


class Claim:
    """A worker's first transition, held back on its way until the test lets it go."""

    def __init__(self, process: Process) -> None:
        self.is_out, self.may_go = asyncio.Event(), asyncio.Event()
        process.ports.on_call = self._hold

    async def _hold(self, call: ScriptCall, answered: bool) -> None:
        if call.script == "append" and not answered and not self.is_out.is_set():
            did.clear()
            did.append("claims")
            self.is_out.set()
            await self.may_go.wait()


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    did.clear()
    async with Stage(redis_url, wf) as ready:
        yield ready


async def begin(stage: Stage, grams: int) -> tuple[str, Claim, asyncio.Task[None]]:
    """A run whose step's claim is on its way, and what is done meanwhile was done."""
    run_id = await stage.start(ship, grams)
    process = stage.process()
    claim = Claim(process)
    working = asyncio.create_task(process.work(lambda: stage.finished(run_id)))
    async with asyncio.timeout(PATIENCE):
        await claim.is_out.wait()
        while did == ["claims"]:  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0)
    return run_id, claim, working


async def test_arguments_are_read_once_and_before_the_claim_is_answered(stage: Stage) -> None:
    run_id, claim, working = await begin(stage, 5)
    assert did == ["claims", "reads 5"]
    claim.may_go.set()
    await working
    assert did[:3] == ["claims", "reads 5", "weighs 5"]
    assert (await stage.read(run_id)).status == "completed"


async def test_what_was_read_for_a_claim_that_is_refused_is_not_run(stage: Stage) -> None:
    run_id, claim, working = await begin(stage, 5)
    await Runs(stage.world).terminate(run_id, b"", retention_ms=60_000)
    claim.may_go.set()
    await working
    assert "weighs 5" not in did


async def test_arguments_that_cannot_be_read_fail_the_step_and_not_before_its_claim(stage: Stage) -> None:
    run_id, claim, working = await begin(stage, 13)
    assert [event.type for event in await stage.events(run_id)] == ["run_created"]
    claim.may_go.set()
    await working
    assert "weighs 13" not in did
    snapshot = await stage.read(run_id)
    assert snapshot.status == "failed"
    assert [event.type for event in snapshot.events][-2:] == ["step_failed", "run_failed"]
