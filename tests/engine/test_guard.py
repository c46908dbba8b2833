"""A message that owns a step in the middle of its code is not let go: a redelivery would run the step beside
itself. Settling, deferring, giving back and parking are all watched by one guard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.acceptance.kit import until
from tests.acceptance.metrics import scrape_port
from tests.engine.kit import Process, Stage
from worker import Workflows
from worker.runtime.endpoint import Endpoint
from worker.runtime.host import Limits
from worker.runtime.refusal import Refusal
from worker.runtime.session import Session
from worker.runtime.telemetry import Telemetry
from worker.sdk.errors import InternalError
from world_redis.ids import new_mark
from world_redis.transition import Transition

wf = Workflows()
gates: list[asyncio.Event] = []  # of the present test
running: list[str] = []


@wf.step
async def holds() -> str:
    running.append("holds")
    await gates[0].wait()
    return "done"


@wf.workflow
async def one_step() -> str:
    return await holds()


# --- ways to let go ---------------------------------------------------------------------------------


async def settle(session: Session) -> None:
    held, seq = session._hand.all, session._hand._seq + 1
    await session._commit.send(
        Transition(session.run_id, new_mark(), held[0], seq, seen=1 << 50, settles=held)
    )


async def give_back(session: Session) -> None:
    await session._leaving.give_back()


async def put_off(session: Session) -> None:
    await session._leaving.refuse(Refusal("unknown_workflow", "for other workers"))


async def park(session: Session) -> None:
    await session._leaving.refuse(Refusal("body_stuck", "at once", at_once=True))


LetGo = Callable[[Session], Awaitable[None]]
every_way = pytest.mark.parametrize("let_go", [settle, give_back, put_off, park])


class Scene:
    """A process in the middle of an inline step, and its /metrics."""

    def __init__(self, stage: Stage, process: Process, run_id: str) -> None:
        self.stage, self.process, self.run_id = stage, process, run_id
        self.endpoint = Endpoint(
            process.host.telemetry, alive=lambda: "", ready=lambda: "", port=0, host="127.0.0.1"
        )
        self.endpoint.start()

    @property
    def session(self) -> Session:
        return self.process.intake._sessions[self.run_id]

    async def unsafe(self) -> int:
        return (await scrape_port(self.endpoint.port))("unsafe_settles_total")

    async def finish(self) -> None:
        gates[0].set()
        await self.process.rest()


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    gates[:] = [asyncio.Event()]
    running.clear()
    async with Stage(redis_url, wf) as ready:
        yield ready


async def scene_of(stage: Stage, *, strict: bool) -> Scene:
    process = stage.process(limits=Limits(strict=strict))
    process.host.telemetry = Telemetry()
    run_id = await stage.start(one_step)
    await process.intake.take()
    await until("the step runs", lambda: running)
    await until("its start is taken in", lambda: process.intake._sessions[run_id]._executions.running)
    return Scene(stage, process, run_id)


# --- tests ------------------------------------------------------------------------------------------


@every_way
async def test_a_message_is_not_let_go_while_its_step_runs(stage: Stage, let_go: LetGo) -> None:
    scene = await scene_of(stage, strict=True)
    held = scene.session._hand.all
    calls = len(scene.process.ports.calls)
    with pytest.raises(InternalError, match="let go while s1 run"):
        await let_go(scene.session)
    assert await scene.unsafe() == 1
    assert scene.process.ports.calls[calls:] == [], "refused before anything was sent"
    assert scene.session._hand.all == held
    await scene.finish()
    assert await stage.finished(scene.run_id)
    assert running == ["holds"]
    scene.endpoint.stop()


@every_way
async def test_in_production_it_is_an_error_in_the_log_and_a_count(
    stage: Stage, let_go: LetGo, caplog: pytest.LogCaptureFixture
) -> None:
    scene = await scene_of(stage, strict=False)
    with caplog.at_level(logging.ERROR, "worker"):
        await let_go(scene.session)
    (record,) = [each for each in caplog.records if "letting go" in each.message]
    assert (record.run_id, record.steps) == (scene.run_id, "s1")  # type: ignore[attr-defined]
    assert await scene.unsafe() == 1
    await scene.finish()
    scene.endpoint.stop()


@every_way
async def test_once_nothing_runs_a_message_may_go(stage: Stage, let_go: LetGo) -> None:
    scene = await scene_of(stage, strict=True)
    await scene.finish()
    assert await stage.finished(scene.run_id)
    assert await scene.unsafe() == 0
    scene.endpoint.stop()


async def test_the_guard_lets_a_finished_run_go(stage: Stage) -> None:
    """Its steps may run on: they record their end as facts, and nobody starts them again."""
    scene = await scene_of(stage, strict=True)
    scene.session._known.status = "cancelled"
    scene.session._leaving.guard(scene.session._hand.all)
    assert await scene.unsafe() == 0
    scene.session._known.status = "running"
    await scene.finish()
    scene.endpoint.stop()
