"""Many wakes beside a step that lasts, and threads that outlast their time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson
import pytest

from tests.acceptance.kit import until
from tests.engine.kit import Stage
from tests.partition import read_partition
from worker import BaseHook, FatalError, RetryPolicy, Workflows
from worker.core.records import HookReceived, pack
from worker.runtime.host import Limits
from world_redis.events import EventType

wf = Workflows()
WORDS = 100
INLINE = 2
gates: list[asyncio.Event] = []  # of the present test
running: list[str] = []
threads = {"now": 0, "most": 0, "starts": 0}


@dataclass
class Go(BaseHook):
    word: str


@wf.step
async def holds() -> str:
    running.append("holds")
    await gates[0].wait()
    return "held"


@wf.step
async def mark(what: str) -> str:
    running.append(what)
    return what


@wf.workflow
async def hears_many_words() -> list[str]:
    """A step for each word, beside one that lasts."""
    async with Go.wait() as hook:
        steps = [asyncio.create_task(holds())]
        for _ in range(WORDS):
            steps.append(asyncio.create_task(mark((await hook).word)))
        return list(await asyncio.gather(*steps))


@wf.step(timeout=0.02, retry=RetryPolicy(max_attempts=3, initial=0.01, backoff=1, jitter=0))
def in_a_thread() -> None:
    threads["now"] += 1
    threads["starts"] += 1
    threads["most"] = max(threads["most"], threads["now"])
    time.sleep(0.2)
    threads["now"] -= 1


@wf.workflow
async def times_out_in_a_thread() -> str:
    try:
        await in_a_thread()
    except FatalError:
        return "given up"
    return "not reached"


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    gates[:] = [asyncio.Event()]
    running.clear()
    threads.update(now=0, most=0, starts=0)
    async with Stage(redis_url, wf) as ready:
        yield ready


async def _say(stage: Stage, run_id: str, n: int) -> None:
    payload = orjson.dumps({"word": f"w{n}"})
    assert await stage.resume(run_id, f"r{n}", pack(HookReceived(payload, f"r{n}")))


async def test_many_wakes_beside_a_long_step_take_no_slots_and_start_no_more_than_allowed(
    stage: Stage,
) -> None:
    process = stage.process(concurrency=INLINE, limits=Limits(strict=True, max_inline_steps=INLINE))
    run_id = await stage.start(hears_many_words)
    await process.intake.take()
    await until("the long step runs", lambda: running)
    for n in range(WORDS):
        await _say(stage, run_id, n)
        await process.intake.take()
        assert len(process.intake._busy) == 1, "every wake joins the one session"
        await _settled(stage)
    while running.count(f"w{WORDS - 1}") == 0:
        await process.intake.take()
        await asyncio.sleep(0)
    gates[0].set()

    async def over() -> bool:
        return await stage.finished(run_id)

    await process.work(over)
    await process.leave()
    assert sorted(running) == sorted(["holds", *(f"w{n}" for n in range(WORDS))]), "each once"
    assert await _most_inline(stage, run_id) <= INLINE


async def _settled(stage: Stage) -> None:
    """The joined wake is settled: what is held of the run is the one message that owns the long step."""

    async def look() -> bool:
        messages = (await read_partition(stage.world, 0)).messages.values()
        return len([m for m in messages if m.kind == "run" and m.state == "f"]) == 1

    await until("the wake is settled", look)


async def _most_inline(stage: Stage, run_id: str) -> int:
    """How many inline bodies the log has at once, at most."""
    inline: set[str] = set()
    most = 0
    for event in await stage.events(run_id):
        if event.type is EventType.STEP_STARTED and event.extra.endswith("inline"):
            inline.add(event.id)
            most = max(most, len(inline))
        elif event.type in (EventType.STEP_COMPLETED, EventType.STEP_FAILED):
            inline.discard(event.id)
    return most


async def test_a_thread_that_outlasts_its_time_never_runs_beside_its_retry(stage: Stage) -> None:
    """The attempt has failed, and nothing can stop its thread: the next one waits for it here."""
    process = stage.process()
    run_id = await stage.start(times_out_in_a_thread)

    async def over() -> bool:
        return await stage.finished(run_id)

    began = time.monotonic()
    await process.work(over)
    await process.leave()
    assert (threads["starts"], threads["most"]) == (3, 1)
    assert time.monotonic() - began >= 0.4, "two threads had to end first"
    assert process.host.slots.taken == 1, "the last one keeps its slot until it ends"
    await until("it ends", lambda: process.host.slots.taken == 0)
