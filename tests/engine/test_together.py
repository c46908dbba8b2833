"""Claims and ends of queued steps share calls; nothing that befalls one of them befalls the others."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest

from tests.engine.kit import LEASE, Cut, Process, Stage
from tests.partition import read_partition
from worker import FatalError, RetryPolicy, WorkflowDefinition, Workflows, get_step_metadata
from worker.runtime.host import Limits
from worker.runtime.keeper import Holdings
from worker.runtime.together import MAX_ASKED, MAX_BYTES, Together
from world_redis.events import EventType
from world_redis.messages import Kind
from world_redis.runs import Runs
from world_redis.scripts import ScriptCall, Switches

wf = Workflows()
WIDE = 12
AWAY = ["away"]
OVER = int(LEASE * 1000) + 1  # ms
began: list[int] = []


@wf.step(queue="away")
async def echo(n: int) -> int:
    began.append(n)
    return n


@wf.step(queue="away", retry=RetryPolicy(max_attempts=2, initial=1, backoff=1, jitter=0))
async def picky(n: int) -> int:
    """Every third fails once, every fourth for good."""
    began.append(n)
    if n % 3 == 0 and get_step_metadata().attempt == 1:
        raise ValueError("not yet")
    if n % 4 == 0:
        raise FatalError("never")
    return n


@wf.step(queue="away")
async def lasts(n: int) -> int:
    began.append(n)
    await asyncio.Event().wait()
    return n


@wf.workflow
async def wide(n: int) -> list[int]:
    return list(await asyncio.gather(*(echo(i) for i in range(n))))


@wf.workflow
async def wide_and_picky() -> list[int]:
    done = await asyncio.gather(*(picky(i) for i in range(WIDE)), return_exceptions=True)
    return [-1 if isinstance(each, BaseException) else each for each in done]


@wf.workflow
async def wide_and_long() -> list[int]:
    return list(await asyncio.gather(*(lasts(i) for i in range(3)), *(echo(i) for i in range(3, 6))))


@wf.workflow
async def one_and_long() -> int:
    return await lasts(0)


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    began.clear()
    async with Stage(redis_url, wf) as ready:
        yield ready


async def queued(stage: Stage, workflow: WorkflowDefinition[..., Any], *args: Any) -> str:
    """A run whose steps all wait in the queue `away`."""
    run_id = await stage.start(workflow, *args)
    home = stage.process()
    await home.intake.take()
    await home.leave()
    return run_id


async def result(stage: Stage, run_id: str) -> object:
    """Bring the run home; what it returns."""
    heir = stage.process(queues=["default", *AWAY], concurrency=2 * WIDE)
    await heir.work(lambda: stage.finished(run_id))
    await heir.leave()
    snapshot = await stage.read(run_id)
    assert await stage.breaches() == []
    ends = Counter(
        e.id for e in snapshot.events if e.type in (EventType.STEP_COMPLETED, EventType.STEP_FAILED)
    )
    assert set(ends.values()) == {1}
    return orjson.loads(snapshot.events[-1].data)


def away(stage: Stage, **how: Any) -> Process:
    return stage.process(queues=AWAY, concurrency=2 * WIDE, **how)


def before(
    script: str, act: Callable[[], Awaitable[object]]
) -> Callable[[ScriptCall, bool], Awaitable[None]]:
    """The first call of `script` is on its way while `act` is done."""
    waiting = [act]

    async def on_call(call: ScriptCall, answered: bool) -> None:
        if not answered and call.script == script and waiting:
            await waiting.pop()()

    return on_call


async def step_messages(stage: Stage) -> int:
    return sum(each.kind == Kind.STEP for each in (await read_partition(stage.world, 0)).messages.values())


# --- how many calls ---------------------------------------------------------------------------------


async def test_steps_that_come_and_end_together_are_one_claim_and_one_transition(stage: Stage) -> None:
    run_id = await queued(stage, wide, WIDE)
    process = away(stage)
    await process.intake.take()
    await process.rest()
    assert process.ports.calls == ["take", "step_claim", "append"]
    assert await step_messages(stage) == 0, "all are settled"
    assert await result(stage, run_id) == list(range(WIDE))


async def test_steps_of_two_runs_share_no_call(stage: Stage) -> None:
    runs = [await queued(stage, wide, 2), await queued(stage, wide, 3)]
    process = away(stage)
    await process.intake.take()
    await process.rest()
    assert sorted(process.ports.calls) == ["append", "append", "step_claim", "step_claim", "take"]
    assert [await result(stage, run_id) for run_id in runs] == [[0, 1], [0, 1, 2]]


async def test_a_retry_is_a_transition_of_its_own_and_comes_again(stage: Stage) -> None:
    """It may be sent only where its message is settled, whatever becomes of the others."""
    run_id = await queued(stage, wide_and_picky)
    process = away(stage)
    await process.intake.take()
    await process.rest()
    retrying = len([n for n in range(WIDE) if n % 3 == 0])
    assert Counter(process.ports.calls) == {"take": 1, "step_claim": 1, "append": 1 + retrying}
    assert await step_messages(stage) == retrying
    assert await result(stage, run_id) == [-1 if n % 4 == 0 else n for n in range(WIDE)]
    assert Counter(began) == {n: 2 if n % 3 == 0 else 1 for n in range(WIDE)}


# --- trouble ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3], ids=["take", "claim", "end"])
async def test_of_a_worker_that_dies_every_step_comes_back(stage: Stage, nth: int, answered: bool) -> None:
    run_id = await queued(stage, wide, WIDE)
    doomed = away(stage, cut=Cut(nth, answered))
    await doomed.work(lambda: stage.finished(run_id))
    assert await stage.breaches() == []
    await stage.clock.forward(OVER)
    assert await result(stage, run_id) == list(range(WIDE))
    assert set(Counter(began).values()) == {2 if nth == 3 and not answered else 1}


async def dies_when_claimed(doomed: Process, over: Callable[[], Awaitable[bool]]) -> None:
    async def on_call(call: ScriptCall, answered: bool) -> None:
        if answered and call.script == "step_claim":
            doomed.ports.dead.set()
            await asyncio.Event().wait()

    doomed.ports.on_call = on_call
    await doomed.work(over)


async def test_steps_whose_worker_dies_again_and_again_are_tried_alone_and_given_up(stage: Stage) -> None:
    run_id = await queued(stage, wide, 2)
    strict = Limits(strict=True, max_step_crashes=1)
    for _ in range(2):
        doomed = stage.process(queues=["default", *AWAY], limits=strict)
        await dies_when_claimed(doomed, lambda: stage.finished(run_id))
        await stage.clock.forward(OVER)
    last = stage.process(queues=["default", *AWAY], limits=strict)
    await last.work(lambda: stage.finished(run_id))
    await last.leave()
    types = [event.type for event in await stage.events(run_id)]
    assert types.count(EventType.STEP_STARTED) == 2 * 2 + 1, "the suspects come one by one"
    assert EventType.STEP_FAILED in types and types[-1] is EventType.RUN_FAILED and began == []
    assert await stage.breaches() == []


async def test_claims_answered_later_than_the_lease_start_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await queued(stage, wide, WIDE)
    slow = away(stage)

    async def a_lease() -> None:
        await stage.clock.forward(OVER)

    slow.ports.on_call = before("step_claim", a_lease)
    with caplog.at_level(logging.WARNING, "worker.delivery"):
        await slow.intake.take()
        await slow.rest()
    assert began == [] and caplog.messages.count("claimed too late to begin") == WIDE
    await stage.clock.forward(OVER)
    assert await result(stage, run_id) == list(range(WIDE))


@pytest.mark.parametrize("claims", [False, True], ids=["takes", "claims"])
@pytest.mark.parametrize("first", ["too", "kept"])
@pytest.mark.parametrize("steps", [1, WIDE // 2, WIDE - 1])
async def test_ends_are_recorded_although_another_worker_has_taken_some_of_their_messages(
    stage: Stage, steps: int, first: str, claims: bool
) -> None:
    """The first of them too, under which the transition counts. Where the other has claimed a step, the end
    is superseded; where it has only taken the message, the end stands."""
    run_id = await queued(stage, wide, WIDE)
    late, other = away(stage), away(stage)

    async def taken_over() -> None:
        await stage.clock.forward(OVER // 2)
        await other.host.queue.take(0, AWAY, runs=0, steps=0, empty=True)  # they are doubted
        if first == "kept":
            await late.host.queue.renew(0, [next(iter(late.intake._steps.values()))])
        await stage.clock.forward(OVER // 2 + 1)
        taken = await other.host.queue.take(0, AWAY, runs=0, steps=steps, empty=True)
        assert len(taken.deliveries) == steps
        if claims:
            await other.host.queue.claim(taken.deliveries)

    late.ports.on_call = before("append", taken_over)
    await late.intake.take()
    await late.rest()
    recorded = [e for e in await stage.events(run_id) if e.type is EventType.STEP_COMPLETED]
    assert len(recorded) == (WIDE - steps if claims else WIDE)
    assert await step_messages(stage) == steps, "each of the others is settled, and theirs are left to them"
    await stage.clock.forward(OVER)
    assert await result(stage, run_id) == list(range(WIDE))


async def kept(stage: Stage) -> dict[bytes, Any]:
    """The whole server, as a replica that is behind has it."""
    keys = await stage.world.command("KEYS", f"{stage.world.keys.namespace}:*")
    return {key: await stage.world.command("DUMP", key) for key in keys}


async def went_back(stage: Stage, past: dict[bytes, Any]) -> None:
    for key in await stage.world.command("KEYS", f"{stage.world.keys.namespace}:*"):
        await stage.world.command("DEL", key)
    for key, value in past.items():
        await stage.world.command("RESTORE", key, 0, value)


async def test_where_the_claims_were_lost_in_a_fail_over_no_message_is_settled(stage: Stage) -> None:
    """They are all that makes their steps run again."""
    run_id = await queued(stage, wide, WIDE)
    process = away(stage)
    past: dict[bytes, Any] = {}

    async def on_call(call: ScriptCall, answered: bool) -> None:
        if not answered and call.script == "step_claim":
            past.update(await kept(stage))
        elif not answered and call.script == "append":
            await went_back(stage, past)

    process.ports.on_call = on_call
    await process.intake.take()
    await process.rest()
    assert await step_messages(stage) == WIDE
    await stage.clock.forward(OVER)
    assert await result(stage, run_id) == list(range(WIDE))
    assert set(Counter(began).values()) == {2}


async def test_messages_taken_twice_in_a_fail_over_are_renewed_as_long_as_their_steps_run(
    stage: Stage,
) -> None:
    """The second delivery has the number of the first, and is refused."""
    await queued(stage, wide_and_long)
    process, past = away(stage), await kept(stage)
    holdings = process.host.holdings = Holdings()

    async def taken_again() -> None:
        await went_back(stage, past)
        await process.intake.take()
        assert len(process.intake._steps) == 12

    process.ports.on_call = before("step_claim", taken_again)
    await process.intake.take()
    async with asyncio.timeout(5):
        while len(process.intake._steps) > 3:  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0)
    assert sorted(began) == list(range(6))
    assert all(held in holdings for held in process.intake._steps.values())
    process.intake.interrupt()
    await process.leave()


async def test_a_delivery_that_was_refused_is_not_renewed_though_its_step_runs_under_an_earlier_number(
    redis_url: str,
) -> None:
    began.clear()
    async with Stage(redis_url, wf, switches=Switches(inline_ownership=False)) as stage:
        run_id = await queued(stage, one_and_long)
        process = away(stage, limits=Limits(strict=True, inline_ownership=False))
        holdings = process.host.holdings = Holdings()
        await process.intake.take()
        async with asyncio.timeout(5):
            while not began:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0)
        (first,) = process.intake._steps.values()
        process.ports.on_call = before(
            "step_claim", functools.partial(Runs(stage.world).terminate, run_id, b"", retention_ms=60_000)
        )
        while len(process.intake._steps) == 1:  # its lease lapses in two halves
            await stage.clock.forward(OVER)
            await process.intake.take()
        async with asyncio.timeout(5):
            while len(process.intake._steps) > 1:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0)
        assert list(process.intake._steps.values()) == [first], "its code runs on"
        assert len(holdings) == 0, "nobody renews what was settled"
        process.intake.interrupt()
        await process.leave()


async def test_ends_of_a_run_that_is_over_are_settled_with_it(stage: Stage) -> None:
    run_id = await queued(stage, wide, WIDE)
    process = away(stage)

    async def terminated() -> None:
        await Runs(stage.world).terminate(run_id, b"", retention_ms=10**6)

    process.ports.on_call = before("append", terminated)
    await process.intake.take()
    await process.rest()
    assert len(began) == WIDE and await step_messages(stage) == 0
    assert await stage.breaches() == []


async def test_a_worker_that_leaves_gives_back_what_was_interrupted_and_records_the_rest(
    stage: Stage,
) -> None:
    await queued(stage, wide_and_long)
    process = away(stage)
    await process.intake.take()
    while sorted(began) != list(range(6)):  # noqa: ASYNC110 - it does not tell
        await asyncio.sleep(0)
    process.host.draining = True
    process.intake.drain()
    process.intake.interrupt()
    await process.rest()
    assert Counter(process.ports.calls)["step_claim"] == 1
    assert await step_messages(stage) == 3
    assert await stage.breaches() == []


# --- the sharing itself -----------------------------------------------------------------------------


class Asked:
    """Answers the double of each number, and notes who asked together."""

    def __init__(self, stage: Stage) -> None:
        self.calls: list[list[int]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.together: Together[int, int] = Together(stage.process().ports, self._answer)

    async def _answer(self, asked: Sequence[int]) -> list[int]:
        self.calls.append(list(asked))
        await self.may_answer.wait()
        if 13 in asked:
            raise ValueError("13")
        return [2 * each for each in asked]


async def test_what_is_asked_in_one_turn_is_one_call_up_to_a_number_and_a_size(stage: Stage) -> None:
    asked = Asked(stage)
    numbers = range(20, 20 + MAX_ASKED + 1)
    told = await asyncio.gather(*(asked.together("a", n) for n in numbers), asked.together("b", 1))
    assert told == [*(2 * n for n in numbers), 2]
    assert [len(call) for call in asked.calls] == [MAX_ASKED, 1, 1]
    asked.calls.clear()
    sizes = [MAX_BYTES // 2, MAX_BYTES // 2, 1, 2 * MAX_BYTES]
    await asyncio.gather(*(asked.together("a", n, size=size) for n, size in enumerate(sizes)))
    assert asked.calls == [[0, 1], [2], [3]]


async def test_who_asks_while_a_call_is_out_asks_anew(stage: Stage) -> None:
    asked = Asked(stage)
    asked.may_answer.clear()
    first = asyncio.create_task(asked.together("a", 1))
    while not asked.calls:  # noqa: ASYNC110 - it does not tell
        await asyncio.sleep(0)
    second = asyncio.create_task(asked.together("a", 2))
    while len(asked.calls) < 2:  # noqa: ASYNC110 - it does not tell
        await asyncio.sleep(0)
    asked.may_answer.set()
    assert [await first, await second] == [2, 4]


async def test_one_who_is_cancelled_takes_nobody_along_and_all_are_told_of_an_error(stage: Stage) -> None:
    asked = Asked(stage)
    asked.may_answer.clear()
    going, staying = [asyncio.create_task(asked.together("a", n)) for n in (1, 2)]
    while not asked.calls:  # noqa: ASYNC110 - it does not tell
        await asyncio.sleep(0)
    going.cancel()
    asked.may_answer.set()
    assert await staying == 4 and going.cancelled()
    told = await asyncio.gather(*(asked.together("a", n) for n in (12, 13)), return_exceptions=True)
    assert [str(each) for each in told] == ["13", "13"]
