"""Nobody renews a delivery before its worker knows of it: what a take brings late is looked at again."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.engine.kit import LEASE, Process, Stage
from tests.partition import read_partition
from worker import Workflows
from world_redis.entities import MessageState
from world_redis.events import EventType
from world_redis.scripts import ScriptCall

wf = Workflows()
HALF = int(LEASE * 500)  # ms
began: list[str] = []


@wf.step
async def marks() -> str:
    began.append("marks")
    return "done"


@wf.workflow
async def one_step() -> str:
    return await marks()


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    began.clear()
    async with Stage(redis_url, wf) as stage:
        yield stage


def when_answered(
    script: str, act: Callable[[], Awaitable[object]]
) -> Callable[[ScriptCall, bool], Awaitable[None]]:
    """The first answer of `script` is on its way while `act` is done."""
    waiting = [act]

    async def on_call(call: ScriptCall, answered: bool) -> None:
        if answered and call.script == script and waiting:
            await waiting.pop()()

    return on_call


async def looks(stage: Stage) -> Process:
    """Another worker that has no room looks at what is due."""
    onlooker = stage.process()
    await onlooker.host.queue.take(0, ["default"], runs=0, steps=0, empty=True)
    return onlooker


async def message(stage: Stage) -> MessageState:
    (found,) = (await read_partition(stage.world, 0)).messages.values()
    return found


async def test_what_comes_late_begins_its_lease_anew_before_it_is_worked_on(stage: Stage) -> None:
    run_id = await stage.start(one_step)
    worker = stage.process()

    async def nearly_a_lease() -> None:
        await stage.clock.forward(HALF)
        await looks(stage)
        assert (await message(stage)).doubted
        await stage.clock.forward(HALF - 1)

    worker.ports.on_call = when_answered("take", nearly_a_lease)
    await worker.intake.take()
    await worker.rest()
    assert worker.ports.calls[:2] == ["take", "renew"]
    assert await stage.finished(run_id) and began == ["marks"]
    await worker.close()


async def test_what_another_worker_has_taken_meanwhile_is_left_to_it(stage: Stage) -> None:
    run_id = await stage.start(one_step)
    slow, quick = stage.process(), stage.process()

    async def more_than_a_lease() -> None:
        await stage.clock.forward(HALF)
        await looks(stage)
        await stage.clock.forward(HALF)
        await quick.intake.take()
        await quick.rest()

    slow.ports.on_call = when_answered("take", more_than_a_lease)
    await slow.intake.take()
    assert slow.intake.empty and slow.ports.calls == ["take", "renew"]
    assert await stage.finished(run_id) and began == ["marks"]
    assert len([e for e in await stage.events(run_id) if e.type is EventType.STEP_STARTED]) == 1
    await quick.close()


async def test_from_a_server_that_is_slow_twice_nothing_is_taken(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await stage.start(one_step)
    worker = stage.process()

    async def on_call(call: ScriptCall, answered: bool) -> None:
        if answered and call.script in ("take", "renew"):
            await stage.clock.forward(HALF - 1)

    worker.ports.on_call = on_call
    with caplog.at_level(logging.WARNING, "worker.intake"):
        await worker.intake.take()
    assert worker.intake.empty and "taken too late to begin" in caplog.messages
    assert ((await message(stage)).state, (await message(stage)).attempt) == ("r", 0), "given back, no crash"
    worker.ports.on_call = None
    await worker.work(lambda: stage.finished(run_id))
    assert began == ["marks"]
    await worker.close()


async def test_what_comes_while_a_worker_drains_is_given_back_at_once(stage: Stage) -> None:
    run_id = await stage.start(one_step)
    leaving = stage.process()

    async def drains() -> None:
        assert not leaving.intake.at_rest, "something is on its way"
        leaving.host.draining = True
        leaving.intake.drain()

    leaving.ports.on_call = when_answered("take", drains)
    await leaving.intake.run()
    assert leaving.intake.at_rest and began == []
    assert ((await message(stage)).state, (await message(stage)).attempt) == ("r", 0)
    other = stage.process()
    await other.work(lambda: stage.finished(run_id))
    await other.close()
