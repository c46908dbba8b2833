"""A cancellable step whose awaiter is cancelled is stopped, whichever worker finds out that it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.engine.kit import LEASE, Process, Stage
from worker import Workflows
from worker.core.records import CancelRequested, pack
from world_redis.events import EventType
from world_redis.runs import Runs
from world_redis.scripts import ScriptCall

wf = Workflows()
LAPSES = int(LEASE * 1000) + 1  # ms
ENDS = (
    EventType.STEP_COMPLETED,
    EventType.STEP_FAILED,
    EventType.RUN_COMPLETED,
    EventType.RUN_FAILED,
    EventType.RUN_CANCELLED,
)
began: list[int] = []
stopped: list[int] = []


@wf.step(cancellable=True)
async def lasts(n: int) -> int:
    began.append(n)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        stopped.append(n)
        raise
    return n


@wf.workflow
async def gives_up(times: int) -> int:
    for n in range(times):
        try:
            async with asyncio.timeout(1):
                await lasts(n)
        except TimeoutError:
            pass
    return times


@wf.workflow
async def gives_up_elsewhere() -> str:
    try:
        async with asyncio.timeout(1):
            await lasts.with_options(queue="other")(0)
    except TimeoutError:
        return "gave up"
    return "too late"


@wf.workflow
async def waits() -> int:
    return await lasts(0)


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    began.clear()
    stopped.clear()
    async with Stage(redis_url, wf) as ready:
        yield ready


async def renewed(process: Process) -> None:
    """What the keeper does: renew, and tell what is not ok."""
    held = [item for session in process.intake._sessions.values() for item in session._hand.all]
    held += process.intake._steps.values()
    for item, word in zip(held, await process.host.queue.renew(0, held), strict=True):
        if word != "ok":
            process.intake.signal(item.message_id, item.number, word)


async def has_begun(times: int) -> None:
    async with asyncio.timeout(5):
        while began != list(range(times)):  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0)


async def is_stopped(owner: Process, times: int) -> None:
    async with asyncio.timeout(5):
        while stopped != list(range(times)):
            await renewed(owner)
            await asyncio.sleep(0.001)


async def test_a_step_is_stopped_although_another_worker_takes_the_timer(stage: Stage) -> None:
    run_id = await stage.start(gives_up, 2)
    owner, other = stage.process(), stage.process()
    await owner.intake.take()
    for n in (1, 2):
        await has_begun(n)
        await stage.clock.forward(1_001)
        await other.intake.take()
        await other.rest()
        await is_stopped(owner, n)
    await owner.leave()
    await other.leave()
    await ended(stage, run_id, [EventType.STEP_FAILED, EventType.STEP_FAILED, EventType.RUN_COMPLETED])


async def test_a_step_is_stopped_although_another_worker_takes_the_cancel_request(stage: Stage) -> None:
    run_id = await stage.start(waits)
    owner, other = stage.process(), stage.process()
    await owner.intake.take()
    await has_begun(1)
    await Runs(stage.world).cancel(run_id, pack(CancelRequested("asked")))
    await other.intake.take()
    await other.rest()
    await is_stopped(owner, 1)
    await owner.leave()
    await other.leave()
    await ended(stage, run_id, [EventType.STEP_FAILED, EventType.RUN_CANCELLED])


async def test_a_step_is_stopped_although_it_is_told_before_its_claim_is_answered(stage: Stage) -> None:
    """That it is told once is enough."""
    run_id = await stage.start(gives_up_elsewhere)
    home, owner = stage.process(), stage.process(queues=["other"])
    await home.intake.take()
    await home.rest()

    async def give_up(call: ScriptCall, answered: bool) -> None:
        if call.script == "step_claim" and answered:
            await stage.clock.forward(1_001)
            await home.intake.take()
            await home.rest()
            await renewed(owner)

    owner.ports.on_call = give_up
    await owner.intake.take()
    await owner.rest()
    assert began == []
    await home.intake.take()
    await home.leave()
    await owner.leave()
    await ended(stage, run_id, [EventType.STEP_FAILED, EventType.RUN_COMPLETED])


@pytest.mark.parametrize("given_back", [False, True])
async def test_a_step_is_stopped_although_nobody_had_claimed_it_again(stage: Stage, given_back: bool) -> None:
    """Its worker died; its message is in the hands of another one, or waits, when the body gives up."""
    run_id = await stage.start(gives_up_elsewhere)
    home, dead, owner = (stage.process(queues=[queue]) for queue in ("default", "other", "other"))
    await home.intake.take()
    await home.rest()
    await dead.intake.take()
    await has_begun(1)
    await dead.die()
    began.clear()
    stopped.clear()
    await stage.clock.forward(LAPSES)
    taken = (await owner.host.queue.take(0, ["other"], runs=0, steps=1, empty=True)).deliveries
    assert not taken, "only doubted"
    await stage.clock.forward(LAPSES)
    (delivery,) = (await owner.host.queue.take(0, ["other"], runs=0, steps=1, empty=True)).deliveries
    if given_back:
        await owner.host.queue.defer(0, [delivery.held])
    await home.intake.take()
    await home.rest()
    if given_back:
        await owner.intake.take()
    else:
        owner.intake._route(delivery)
    await has_begun(1)
    await is_stopped(owner, 1)
    await owner.rest()
    await home.intake.take()
    await home.leave()
    await owner.leave()
    await ended(stage, run_id, [EventType.STEP_FAILED, EventType.RUN_COMPLETED])


async def ended(stage: Stage, run_id: str, ends: list[EventType]) -> None:
    assert [event.type for event in await stage.events(run_id) if event.type in ENDS] == ends
    assert await stage.breaches() == []
