"""Workflows of two steps and more, and a worker whose claim of the second one the test holds back.

The end of step `a` and the start of what follows ride one transition, the worker's second. `Held` stops it on
its way there (`sent`) or back (`answered`) until the test lets it go.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.engine.kit import PATIENCE, Process, Stage
from worker import BaseHook, Client, FatalError, WorkflowDefinition, Workflows, get_step_metadata
from worker.core.records import CancelRequested, pack
from worker.runtime.host import Limits
from world_redis.events import EventType
from world_redis.runs import Runs
from world_redis.scripts import ScriptCall

wf = Workflows()
ON = Limits(strict=True, async_step_completed=True)


@dataclass
class Doings:
    """What the steps of one test do and did."""

    began: list[str] = field(default_factory=list)  # step names, in order
    over: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)  # what bodies were told, in order
    draws: int = 0
    connect: Callable[[], Client] | None = None
    at_end_of_a: Callable[[], Awaitable[None]] | None = None  # while its worker holds the run
    b_begins: asyncio.Event = field(default_factory=asyncio.Event)
    b_may_end: asyncio.Event = field(default_factory=asyncio.Event)
    thread_may_end: threading.Event = field(default_factory=threading.Event)

    def client(self) -> Client:
        assert self.connect is not None
        return self.connect()

    def begin(self, what: str) -> None:
        self.began.append(what)
        self.tokens.append(get_step_metadata().fencing_token)


now = Doings()


@contextmanager
def doings() -> Iterator[Doings]:
    global now
    now = Doings()
    try:
        yield now
    finally:
        now.thread_may_end.set()
        now.b_may_end.set()


# --- steps --------------------------------------------------------------------------------------


@wf.step
async def a() -> int:
    """How often it was executed."""
    mine = now
    mine.begin("a")
    mine.draws += 1
    drawn, meddle, mine.at_end_of_a = mine.draws, mine.at_end_of_a, None
    if meddle is not None:
        await meddle()
    mine.over.append("a")
    return drawn


@wf.step
async def b(drawn: int) -> int:
    """Stands until it may end, the first time; can be stopped."""
    mine = now
    mine.begin("b")
    mine.b_begins.set()
    try:
        await mine.b_may_end.wait()
    finally:
        mine.over.append("b")
    return drawn * 10


@wf.step
def b_in_a_thread(drawn: int) -> int:
    """Cannot be stopped."""
    mine = now
    mine.begin("b")
    mine.thread_may_end.wait(PATIENCE)
    mine.over.append("b")
    return drawn * 10


@wf.step
async def b_fails(drawn: int) -> int:
    now.begin("b")
    now.b_begins.set()
    raise FatalError(f"draw {drawn}")


@wf.step
async def b_starts_a_run(drawn: int) -> str:
    now.begin("b")
    now.b_begins.set()
    async with now.client() as client:
        run = await client.start(alone, drawn)
    now.over.append("b")
    return run.run_id


@wf.step
def b_starts_a_run_in_a_thread(drawn: int) -> str:
    return asyncio.run(b_starts_a_run.fn(drawn))


@wf.step
async def c(what: int) -> int:
    now.begin("c")
    now.over.append("c")
    return what + 1


@wf.step
async def tidy() -> str:
    now.begin("tidy")
    now.over.append("tidy")
    return "tidied"


# --- workflows ----------------------------------------------------------------------------------


@wf.workflow
async def three_in_a_row() -> int:
    return await c(await b(await a()))


@wf.workflow
async def three_with_a_thread() -> int:
    return await c(await b_in_a_thread(await a()))


@wf.workflow
async def starts_a_run() -> str:
    return await b_starts_a_run(await a())


@wf.workflow
async def starts_a_run_in_a_thread() -> str:
    return await b_starts_a_run_in_a_thread(await a())


@wf.workflow
async def alone(what: int) -> int:
    return what


@wf.workflow
async def catches_a_failure() -> str:
    try:
        await b_fails(await a())
    except FatalError as error:
        return str(error)
    return ""


@wf.workflow
async def tidies_up() -> int:
    try:
        return await c(await b(await a()))
    finally:
        await tidy()


@wf.workflow
async def tidies_up_after_a_thread() -> int:
    try:
        return await c(await b_in_a_thread(await a()))
    finally:
        await tidy()


@wf.workflow
async def raises_on_the_first_draw() -> int:
    """On what follows from an `a` that was drawn once."""
    tenfold = await b(await a())
    now.seen.append(tenfold)
    if tenfold == 10:
        raise ValueError("the first draw")
    return tenfold


@wf.workflow
async def raises_at_once() -> int:
    drawn = await a()
    now.seen.append(drawn)
    if drawn == 1:
        raise ValueError("the first draw")
    return await b(drawn)


@dataclass
class Word(BaseHook):
    text: str


@wf.workflow
async def with_an_open_hook() -> int:
    async with Word.wait():
        return await b(await a())


@wf.workflow
async def with_an_open_timer() -> int:
    async with asyncio.timeout(3600):
        return await b(await a())


@wf.workflow
async def beside_another_step() -> list[int]:
    async def both() -> int:
        return await b(await a())

    return list(await asyncio.gather(both(), b(0)))


# --- the worker ---------------------------------------------------------------------------------


class Held:
    """Holds the `nth` append of a process, before its script or after it."""

    def __init__(self, process: Process, *, answered: bool, nth: int = 2) -> None:
        self._nth, self._answered, self._count = nth, answered, 0
        self.reached, self._go = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None  # to be raised there
        process.ports.on_call = self._look

    async def _look(self, call: ScriptCall, answered: bool) -> None:
        if call.script != "append":
            return
        self._count += not answered
        if self._count == self._nth and answered == self._answered:
            self.reached.set()
            await self._go.wait()
            if self.error is not None:
                raise self.error

    def let_go(self) -> None:
        self._go.set()


class Scene:
    """A run, and a worker that is held at the claim of its second step."""

    def __init__(self, stage: Stage, process: Process, run_id: str, held: Held) -> None:
        self.stage, self.process, self.run_id, self.held = stage, process, run_id, held
        self._working: asyncio.Task[None] | None = None

    @staticmethod
    async def begin(
        stage: Stage,
        workflow: WorkflowDefinition[..., Any],
        *,
        answered: bool = False,
        meddle: Callable[[Stage, str], Awaitable[None]] | None = None,
        limits: Limits = ON,
        once: bool = False,
    ) -> Scene:
        """Until the claim is on its way, or its answer is. `meddle` happens before, while `a` runs; a worker
        that takes only `once` does not take what it gives back."""
        run_id = await stage.start(workflow)
        if meddle is not None:
            now.at_end_of_a = lambda: meddle(stage, run_id)
        process = stage.process(limits=limits)
        scene = Scene(stage, process, run_id, Held(process, answered=answered))
        await scene.work(once=once)
        return scene

    async def work(self, *, once: bool = False) -> None:
        """Begin to; returns when the claim is held."""
        if once:
            await self.process.intake.take()
        else:
            self._working = asyncio.create_task(self.process.work(self.over))
        await wait_for("the claim", self.held.reached)

    async def over(self) -> bool:
        return await self.stage.finished(self.run_id)

    async def finish(self) -> str:
        """Let the claim go, and all the rest; the run's status when it is over."""
        self.held.let_go()
        if self._working is not None:
            async with asyncio.timeout(PATIENCE):
                await self._working
        await self.process.leave()
        assert await self.stage.breaches() == []
        host = self.process.host
        assert (host.slots.taken, host.flights, host.detached) == (0, {}, set())
        return (await self.stage.read(self.run_id)).status

    async def result(self) -> Any:
        end = (await self.stage.events(self.run_id))[-1]
        assert end.type is EventType.RUN_COMPLETED
        return wf.codec.decode(end.data)

    async def shown(self) -> list[str]:
        return [f"{event.type.value} {event.id}".strip() for event in await self.stage.events(self.run_id)]


async def wait_for(what: str, event: asyncio.Event) -> None:
    await until(what, event.is_set)


async def until(what: str, look: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not look():  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} s: {what}") from None


async def some_turns(stage: Stage) -> None:
    """Time in which whatever could start would have started."""
    for _ in range(3):
        await stage.world.command("PING")
        for _ in range(10):
            await asyncio.sleep(0)


# --- what the outside does while `a` runs ----------------------------------------------------------


async def ask_to_cancel(stage: Stage, run_id: str) -> None:
    await Runs(stage.world).cancel(run_id, pack(CancelRequested("")))


async def terminate(stage: Stage, run_id: str) -> None:
    await Runs(stage.world).terminate(run_id, b"", retention_ms=60_000)


# --- what is counted and recorded -----------------------------------------------------------------


async def data_of(stage: Stage, run_id: str, type: EventType, id: str) -> bytes:
    (event,) = [e for e in await stage.events(run_id) if (e.type, e.id) == (type, id)]
    return event.data


def count(process: Process, outcome: str) -> float:
    """Deferred completions so far. All processes of these tests count together."""
    name = "workflow_deferred_completions_total"
    return process.host.telemetry.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


def absorbed(process: Process) -> float:
    """Deliveries so far that waited for their step's code to end here."""
    name = "workflow_single_flight_absorbed_total"
    return process.host.telemetry.registry.get_sample_value(name) or 0.0
