"""A payload that does not fit is told by the pass that meets it, and the run waits on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.acceptance.kit import until
from tests.engine.kit import Cut, Process, Stage
from tests.engine.test_budget import run_to_rest
from worker import BaseHook, Workflows, get_step_metadata
from worker.core.records import HookReceived, pack
from worker.runtime.telemetry import Telemetry
from world_redis.entities import settled_of
from world_redis.events import EventType
from world_redis.scripts import ScriptCall

wf = Workflows()
gates: list[asyncio.Event] = []  # of the present test
running: list[str] = []
WRONG, RIGHT = b'{"wrod":"go"}', b'{"word":"go"}'
COUNTER = "workflow_passed_over_payloads_total"


@dataclass
class Go(BaseHook):
    word: str


@wf.step
async def hold() -> None:
    running.append(get_step_metadata().run_id)
    await gates[0].wait()


@wf.workflow
async def words(n: int) -> list[str]:
    async with Go.wait() as hook:
        return [(await hook).word for _ in range(n)]


@wf.workflow
async def step_and_word() -> str:
    async with Go.wait() as hook:
        await hold()
        return (await hook).word


@wf.workflow
async def word_in_time() -> str:
    async with Go.wait() as hook:
        try:
            async with asyncio.timeout(60):
                return (await hook).word
        except TimeoutError:
            return "late"


@dataclass
class Run:
    """A run that waits for words, and who has counted what it passed over."""

    stage: Stage
    id: str
    sent: int = 0

    async def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.sent += 1
            key = f"r{self.sent}"
            assert await self.stage.resume(self.id, key, pack(HookReceived(payload, key)))

    async def rests(self) -> bool:
        """Has a settled pass seen all there is?"""
        snapshot = await self.stage.read(self.id)
        return settled_of(snapshot.record) == snapshot.position

    async def ended(self) -> None:
        events = await self.stage.events(self.id)
        assert events[-1].type is EventType.RUN_COMPLETED
        received = [event for event in events if event.type is EventType.HOOK_RECEIVED]
        assert len(received) == self.sent, "what was sent is kept in the log"
        assert await self.stage.breaches() == []


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    gates[:] = [asyncio.Event()]
    running.clear()
    async with Stage(redis_url, wf) as ready:
        yield ready


@pytest.fixture
async def first(stage: Stage) -> AsyncIterator[Process]:
    process = counting(stage)
    yield process
    await process.leave()


@pytest.fixture
async def second(stage: Stage) -> AsyncIterator[Process]:
    process = counting(stage)
    yield process
    await process.leave()


def counting(stage: Stage, cut: Cut | None = None) -> Process:
    process = stage.process(cut=cut)
    process.host.telemetry = Telemetry()
    return process


def counted(process: Process) -> float:
    return process.host.telemetry.registry.get_sample_value(COUNTER) or 0.0


async def at_rest(stage: Stage, process: Process, n: int) -> Run:
    """A run at rest at its hook, with a live body in `process`."""
    run = Run(stage, await stage.start(words, n))
    await run_to_rest(process)
    return run


async def test_a_wrong_payload_is_logged_and_counted_once_and_fails_nothing(
    stage: Stage, first: Process, caplog: pytest.LogCaptureFixture
) -> None:
    run = await at_rest(stage, first, 2)
    for payload in (WRONG, RIGHT, RIGHT):
        await run.send(payload)
        await run_to_rest(first)
    (told,) = [record for record in caplog.records if "passed over" in record.getMessage()]
    assert "payload of hook Go.word: Field required" in told.getMessage()
    (slot, *_) = [e.slot for e in await stage.events(run.id) if e.type is EventType.HOOK_RECEIVED]
    about = told.__dict__
    assert (about["run_id"], about["hook"], about["slot"]) == (run.id, "h1", slot)
    assert counted(first) == 1
    await run.ended()


async def test_a_body_built_anew_tells_nothing_again(stage: Stage, first: Process, second: Process) -> None:
    run = await at_rest(stage, first, 2)
    await run.send(WRONG)
    await run_to_rest(first)
    first.intake.close()
    for process in (first, second):  # in the process that told it, and in another one
        await run.send(RIGHT)
        await run_to_rest(process)
    assert (counted(first), counted(second)) == (1, 0)
    assert second.ports.calls.count("run_read") == 1, "what it has read says that it is told"
    await run.ended()


async def test_a_body_built_anew_for_a_timer_tells_nothing_again(
    stage: Stage, first: Process, second: Process
) -> None:
    """The payload is the last event it finds: it meets it as if it had just come."""
    run = Run(stage, await stage.start(word_in_time))
    await run_to_rest(first)
    await run.send(WRONG)
    await run_to_rest(first)
    await stage.clock.forward_to_what_is_due()
    await run_to_rest(second)
    assert (counted(first), counted(second)) == (1, 0)
    await run.ended()


async def test_a_log_that_went_back_is_told_anew(stage: Stage, first: Process) -> None:
    """What the same session has told was in a slot that now holds another payload."""
    run = await at_rest(stage, first, 1)
    command, keys = stage.world.command, await stage.world.command("KEYS", f"{stage.world.keys.namespace}*")
    before = {key: await command("DUMP", key) for key in keys}
    await run.send(WRONG)
    await run_to_rest(first)
    assert counted(first) == 1
    for key, content in before.items():
        await command("RESTORE", key, 0, content, "REPLACE")
    first.ports.server = lambda: "another"  # type: ignore[method-assign]
    await run.send(WRONG)
    await run_to_rest(first)
    assert counted(first) == 2


async def test_a_body_that_rested_while_another_worker_told_it_tells_nothing(
    stage: Stage, first: Process, second: Process
) -> None:
    run = await at_rest(stage, first, 2)
    await run.send(WRONG)
    await run_to_rest(second)
    await run.send(RIGHT, WRONG)
    await run_to_rest(first)
    assert (counted(first), counted(second)) == (1, 1), "each has told the one it met first"
    await run.send(RIGHT)
    await run_to_rest(second)
    assert (counted(first), counted(second)) == (1, 1)
    await run.ended()


async def test_a_cold_worker_that_finds_two_tells_both(stage: Stage, first: Process, second: Process) -> None:
    run = await at_rest(stage, first, 1)
    await first.leave()
    await run.send(WRONG, WRONG)
    await run_to_rest(second)
    assert counted(second) == 2
    await run.send(RIGHT)
    await run_to_rest(second)
    assert counted(second) == 2
    await run.ended()


@pytest.mark.parametrize("cold", [True, False])
async def test_what_the_pass_that_ends_a_run_meets_is_told(
    stage: Stage, first: Process, second: Process, cold: bool
) -> None:
    run = await at_rest(stage, first, 1)
    await run.send(WRONG, RIGHT)
    ends = second if cold else first
    await run_to_rest(ends)
    assert counted(ends) == 1
    await run.ended()


async def test_what_was_kept_until_the_end_of_a_step_is_told_when_it_is_met(
    stage: Stage, first: Process
) -> None:
    """The run ends on the end of the step: nothing more is heard of the body."""
    run = await beside_a_step(stage, first)
    await run.send(WRONG, RIGHT)
    await first.intake.take()
    await until("both are kept", run.rests)
    assert counted(first) == 0, "nobody has asked for it yet"
    gates[0].set()
    await first.rest()
    assert counted(first) == 1
    await run.ended()


async def test_a_bet_that_is_lost_tells_nothing_twice(stage: Stage, first: Process) -> None:
    """The body has gone ahead on the end of its step and met a payload. Another one overtakes that end."""
    run = await beside_a_step(stage, first)
    await run.send(WRONG)
    await first.intake.take()
    await until("it is kept", run.rests)
    overtaking = [WRONG]

    async def on_call(call: ScriptCall, answered: bool) -> None:
        if call.script == "append" and not answered and overtaking:
            await run.send(overtaking.pop())

    first.ports.on_call = on_call
    gates[0].set()
    await first.rest()
    await run_to_rest(first)
    assert "run_read" in first.ports.calls, "the body was built anew"
    assert counted(first) == 2
    await run.send(RIGHT)
    await run_to_rest(first)
    assert counted(first) == 2
    await run.ended()


@pytest.mark.parametrize("answered", [False, True])
async def test_a_worker_that_dies_before_it_has_settled_leaves_it_to_its_successor(
    stage: Stage, second: Process, answered: bool
) -> None:
    """Told once more, never forgotten; when it had settled, its successor knows."""
    leaver = counting(stage)
    run = await at_rest(stage, leaver, 1)
    await leaver.leave()
    await run.send(WRONG)
    doomed = counting(stage, Cut(nth=4, answered=answered))  # take, read, the record, append
    await doomed.work(never)
    assert doomed.ports.calls == ["take", "run_read", "run_read", "settle"]
    assert counted(doomed) == 1
    await stage.clock.forward_to_what_is_due()
    await run.send(RIGHT)
    await run_to_rest(second)
    assert counted(second) == (0 if answered else 1)
    await run.ended()


async def test_a_body_that_cannot_go_on_tells_nothing(stage: Stage, first: Process) -> None:
    """Its run is given back again and again: whoever takes it on tells."""
    run = await at_rest(stage, first, 1)
    first.intake.close()
    await run.send(WRONG)
    await stage.resume(run.id, "r0", b"not a record")
    for _ in range(3):
        await run_to_rest(first)
        await stage.clock.forward_to_what_is_due()
    assert first.ports.calls.count("run_refuse") == 3
    assert counted(first) == 0


async def test_a_worker_that_gives_its_run_back_leaves_it_to_its_successor(
    stage: Stage, first: Process, second: Process
) -> None:
    run = await at_rest(stage, first, 1)
    first.intake.close()

    async def drain(call: ScriptCall, answered: bool) -> None:
        if call.script == "run_read" and answered:
            first.host.draining = True
            first.intake.drain()

    first.ports.on_call = drain
    await run.send(WRONG)
    await first.intake.take()
    await first.rest()
    assert first.ports.calls[-2:] == ["run_read", "message_defer"]
    await run_to_rest(second)
    assert (counted(first), counted(second)) == (0, 1)
    await run.send(RIGHT)
    await run_to_rest(second)
    await run.ended()


async def beside_a_step(stage: Stage, process: Process) -> Run:
    """A run that waits for a step; it asks for a payload when that has ended."""
    run = Run(stage, await stage.start(step_and_word))
    await process.intake.take()
    await until("the step runs", lambda: bool(running))
    return run


async def never() -> bool:
    return False
