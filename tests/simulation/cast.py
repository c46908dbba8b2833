"""The workflows that simulated workers run, and what each may end as.

A step's code asks the schedule to go on (`_work`), so that it may be overtaken by anything; some take
virtual time as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from worker.core.retry import RetryPolicy
from worker.sdk.calls import sleep
from worker.sdk.definitions import Step, WorkflowDefinition
from worker.sdk.errors import FatalError, HookConflictError
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows
from worker.sdk.step import get_resources, get_step_metadata

wf = Workflows()


@asynccontextmanager
async def _work() -> AsyncIterator[int]:
    """Around a step's code: recorded from start to end, suspended once. Yields the attempt."""
    worker, metadata = get_resources(), get_step_metadata()
    execution = worker.schedule.executions.begin(worker, metadata)
    try:
        await worker.park("step", f"{metadata.name} {execution.label}")
        yield metadata.attempt
    finally:
        worker.schedule.executions.end(execution)


# --- steps --------------------------------------------------------------------------------------


@wf.step
async def add(a: int, b: int) -> int:
    async with _work():
        return a + b


@wf.step
async def slow(seconds: float, value: int) -> int:
    async with _work():
        await asyncio.sleep(seconds)
        return value


@wf.step(queue="side")
async def aside(value: int) -> int:
    async with _work():
        return value


@wf.step(retry=RetryPolicy(max_attempts=3, initial=0.5))
async def flaky(good_from: int) -> int:
    async with _work() as attempt:
        if attempt < good_from:
            raise ValueError(f"attempt {attempt}")
        return attempt


@wf.step(timeout=2, retry=RetryPolicy(max_attempts=2, initial=0.1))
async def hanging() -> int:
    async with _work():
        await asyncio.sleep(60)
        return 0


@wf.step
async def stubborn(seconds: float, value: int) -> int:
    """Cannot be stopped, like code in a thread."""
    async with _work():
        worker, loop = get_resources(), asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            try:
                await asyncio.sleep(end - loop.time())
            except asyncio.CancelledError:
                if worker.dead:
                    raise
        return value


@wf.step(cancellable=True)
async def stoppable(seconds: float, value: int) -> int:
    async with _work():
        await asyncio.sleep(seconds)
        return value


# --- workflows ----------------------------------------------------------------------------------


@dataclass
class Note(BaseHook):
    text: int


@wf.workflow
async def chain(length: int) -> int:
    total = 0
    for number in range(length):
        total = await add(total, number)
    return total


@wf.workflow
async def fan(width: int) -> int:
    parts = await asyncio.gather(*(add(n, 1) if n % 3 else slow(1.5, n + 1) for n in range(width)))
    return await add(sum(parts), 0)


@wf.workflow
async def race(seconds: float) -> int:
    """The first of two steps and a timer; the losers are dropped."""
    runners = [
        asyncio.create_task(slow(seconds, 1)),
        asyncio.create_task(add(1, 1)),
        asyncio.create_task(_nap(1.0, 3)),
    ]
    done, rest = await asyncio.wait(runners, return_when=asyncio.FIRST_COMPLETED)
    for task in runners:
        if task in rest:
            task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    first = next(task for task in runners if task in done)
    return await add(first.result(), 10)


async def _nap(seconds: float, value: int) -> int:
    await sleep(seconds)
    return value


@wf.workflow
async def patient(seconds: float) -> str:
    """Sleeps, and a step that may not be in time."""
    await sleep(1)
    try:
        async with asyncio.timeout(2):
            await slow(seconds, 1)
        word = "in time"
    except TimeoutError:
        word = "late"
    await asyncio.gather(sleep(0.5), sleep(0.7), add(1, 1))
    return word


@wf.workflow
async def approval(payloads: int) -> list[int]:
    """A hook and a long inline step; payloads come in the middle of it."""
    async with Note.wait() as hook:
        long = asyncio.create_task(slow(5, 100))
        found = [(await hook).text for _ in range(payloads)]
        return [await long, *sorted(found)]


@wf.workflow
async def stream(payloads: int) -> int:
    """Every payload is worked on while others come."""
    total = 0
    async with Note.wait() as hook:
        for _ in range(payloads):
            total = await add(total, (await hook).text)
    return total


@wf.workflow
async def named(token: str) -> str:
    """Several runs want one token; the losers hear so."""
    async with Note.wait(token=token) as hook:
        try:
            return f"got {(await hook).text}"
        except HookConflictError:
            return f"conflict {await add(1, 1)}"


@wf.workflow
async def child(length: int) -> int:
    total = await add(0, 1)
    await sleep(0.3)
    for number in range(length):
        total = await add(total, number)
    return total


@wf.workflow
async def family(children: int) -> int:
    results = await asyncio.gather(add(1, 2), *(child(n) for n in range(children)))
    return sum(results)


@wf.workflow
async def retries() -> list[Any]:
    first = await flaky(2)
    try:
        await flaky(9)
        second = "good"
    except FatalError as error:
        second = type(error.__cause__).__name__
    try:
        await hanging()
        third = "good"
    except FatalError:
        third = "timeout"
    return [first, second, third]


@wf.workflow
async def tidy() -> int:
    """Cancelled from outside, it still tidies up."""
    try:
        async with Note.wait() as hook:
            got = asyncio.create_task(slow(4, 5))
            await hook
            return await got
    finally:
        await add(40, 2)


@wf.workflow
async def plod(length: int) -> int:
    """One step after the other, every second one not to be stopped, and one more when it is cancelled."""
    total = 0
    try:
        for number in range(length):
            total += await (stubborn(4.0, number) if number % 2 else add(number, 0))
        return total
    finally:
        await add(40, 2)


@wf.workflow
async def careful(seconds: float) -> str:
    """Its cancelled step is told, and waited for."""
    try:
        async with asyncio.timeout(1):
            await stoppable(seconds, 1)
        word = "done"
    except TimeoutError:
        word = "stopped"
    await aside(1)
    return word


@wf.workflow
async def mixed(width: int) -> int:
    """Queued elsewhere, here, and inside a task group, with a sleep between."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(aside(n) if n % 2 else add(n, 0)) for n in range(width)]
    await sleep(0.2)
    return sum(task.result() for task in tasks) + await add(0, 0)


@wf.workflow
async def sturdy(width: int) -> int:
    """Steps that outlast their leases."""
    parts = await asyncio.gather(*(stubborn(4.0, n) for n in range(width)))
    return await add(sum(parts), 1)


# --- builds -------------------------------------------------------------------------------------


class OldBuild(Workflows):
    """The code before the last deploy: it does not know everything yet."""

    _unknown = ("chain", "race", "aside", "flaky")

    def __init__(self) -> None:
        super().__init__()
        self.include(wf)

    def find_workflow(self, name: str, version: int) -> WorkflowDefinition[Any, Any] | None:
        return None if name in self._unknown else super().find_workflow(name, version)

    @property
    def steps(self) -> Mapping[str, Step[Any, Any]]:
        return {name: step for name, step in super().steps.items() if name not in self._unknown}


# --- parts --------------------------------------------------------------------------------------

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Part:
    """A workflow with arguments, and what it may return when nobody cancels it."""

    workflow: WorkflowDefinition[Any, Any]
    args: tuple[Any, ...]
    fits: Check
    payloads: int = 0  # resumes it needs to end


def _is(value: Any) -> Check:
    return lambda result: bool(result == value)


def _among(*values: Any) -> Check:
    return lambda result: result in values


PARTS: tuple[Part, ...] = (
    Part(chain, (4,), _is(6)),
    Part(fan, (4,), _is(10)),
    Part(fan, (7,), _is(28)),
    Part(race, (0.5,), _among(11, 12, 13)),
    Part(race, (4.0,), _among(11, 12, 13)),
    Part(patient, (0.5,), _among("in time", "late")),
    Part(patient, (9.0,), _among("in time", "late")),
    Part(approval, (2,), _is([100, 1, 2]), payloads=2),
    Part(stream, (3,), _is(6), payloads=3),
    Part(named, ("shared",), lambda result: result in ("got 1", "conflict 2"), payloads=1),
    Part(family, (2,), _is(5)),
    Part(retries, (), _is([2, "ValueError", "timeout"])),
    Part(sturdy, (3,), _is(4)),
    Part(tidy, (), _is(5), payloads=1),
    Part(plod, (4,), _is(6)),
    Part(careful, (0.5,), _among("done", "stopped")),
    Part(careful, (9.0,), _among("done", "stopped")),
    Part(mixed, (5,), _is(10)),
)
