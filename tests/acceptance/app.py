"""The application whose workers the acceptance tests start, kill, stop and drain."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from worker import (
    BaseHook,
    FatalError,
    HookConflictError,
    RemoteError,
    RetryableError,
    RetryPolicy,
    RunCancelledError,
    SerializationError,
    StepCrashedError,
    StepTimeoutError,
    WorkflowError,
    WorkflowRunFailedError,
    Workflows,
    as_completed,
    get_step_metadata,
    is_cancelled,
    sleep,
    start,
)

wf = Workflows()


# --- steps and what they leave behind -----------------------------------------------------------


def note(what: str, phase: str = "") -> None:
    """Write down a side effect: one line, whole or not at all."""
    line = json.dumps({"what": what, "phase": phase, "pid": os.getpid(), "at": time.monotonic()})
    file = os.open(Path(os.environ["TEST_DIRECTORY"], "effects"), os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


@asynccontextmanager
async def lasting(what: str) -> AsyncIterator[None]:
    """A side effect with a start and an end, or `stopped` when the code was interrupted."""
    note(what, "start")
    try:
        yield
    except BaseException:
        note(what, "stopped")
        raise
    note(what, "end")


async def pass_gate(name: str) -> None:
    while not is_open(name):  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(0.01)


def is_open(gate: str) -> bool:
    return Path(os.environ["TEST_DIRECTORY"], f"gate-{gate}").exists()


@wf.step
async def mark(what: str) -> str:
    """A side effect that takes no time."""
    note(what)
    return what


@wf.step
async def work(what: str, seconds: float) -> str:
    """A side effect that lasts."""
    async with lasting(what):
        await asyncio.sleep(seconds)
    return what


@wf.step
async def held(what: str) -> str:
    """A side effect that lasts until the test opens its gate."""
    async with lasting(what):
        await pass_gate(what)
    return what


@wf.step(queue="side")
async def held_elsewhere(what: str) -> str:
    """The same, from another queue."""
    async with lasting(what):
        await pass_gate(what)
    return what


# --- ownership ------------------------------------------------------------------------------------


@dataclass
class Go(BaseHook):
    word: str


@wf.workflow
async def hook_beside_step() -> str:
    """Waits for a payload while a step runs."""
    async with Go.wait() as hook:
        slow = asyncio.create_task(work("slow", 1.5))
        go = await hook
        await mark(go.word)
        return await slow


@wf.workflow
async def hook_beside_held_step() -> str:
    """The same, with a step that waits for the test."""
    async with Go.wait() as hook:
        slow = asyncio.create_task(held("slow"))
        await mark((await hook).word)
        return await slow


@wf.workflow
async def one_held_step() -> str:
    return await held("a")


@wf.workflow
async def held_on_the_side() -> str:
    return await held_elsewhere("a")


@wf.workflow
async def held_then_marks() -> list[str]:
    first = await held("a")
    return [first, await mark("b"), await mark("c")]


@wf.workflow
async def two_held_then_mark() -> list[str]:
    done = await asyncio.gather(held("a"), held("b"))
    return [*done, await mark("c")]


@wf.workflow
async def longer_than_the_lease() -> str:
    await work("slow", 2.5)
    await sleep(2.5)
    return await mark("after")


# --- several at once --------------------------------------------------------------------------------


@wf.workflow
async def first_of_two() -> list[str]:
    """Goes on as soon as one of two queued steps ends."""
    tasks = [
        asyncio.create_task(work.with_options(queue="side")("quick", 0.1)),
        asyncio.create_task(held.with_options(queue="side")("long")),
    ]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    names = [task.result() for task in done]
    await mark("went-on")
    rest = await asyncio.gather(*pending)
    return [*names, *rest]


@wf.workflow
async def together(n: int) -> list[str]:
    return await asyncio.gather(*(work(f"w{i}", 0.02) for i in range(n)))


@wf.workflow
async def task_group() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(mark(name)) for name in "abc"]
    return [task.result() for task in tasks]


@wf.workflow
async def task_group_with_a_failure() -> list[str]:
    failures: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(held("never"))
            group.create_task(fatal("broken"))
    except* FatalError as errors:
        failures += [str(error) for error in errors.exceptions]
    return failures


@wf.workflow
async def gives_up_waiting() -> str:
    try:
        async with asyncio.timeout(0.3):
            await held("long")
    except TimeoutError:
        return await mark("gave-up")
    return "too late"


@wf.workflow
async def in_order_of_completion() -> list[str]:
    calls = [work("c", 0.6), work("a", 0.01), work("b", 0.3)]
    return [await each for each in as_completed(calls)]


# --- failures ---------------------------------------------------------------------------------------


@wf.step
async def fatal(text: str) -> None:
    raise FatalError(text)


@wf.step(retry=RetryPolicy(max_attempts=3, initial=0.05, backoff=2, jitter=0))
async def flaky(failures: int) -> int:
    """Fails as often as asked; the attempt that works."""
    attempt = get_step_metadata().attempt
    note("flaky", "start")
    if attempt <= failures:
        raise ValueError(f"attempt {attempt}")
    return attempt


@wf.step
async def when_it_says() -> float:
    """Asks for its own delay."""
    note("again")
    if get_step_metadata().attempt == 1:
        raise RetryableError(retry_after=0.3)
    return time.monotonic()


@wf.step(timeout=0.2, retry=RetryPolicy(max_attempts=2, initial=0.01))
async def too_slow() -> None:
    note("too-slow")
    await asyncio.sleep(30)


@wf.step
async def exits() -> None:
    note("exits")
    sys.exit(3)


@wf.step
async def blocks_the_loop(seconds: float) -> None:
    note("blocks", "start")
    time.sleep(seconds)  # noqa: ASYNC251 - the very thing this is about
    note("blocks", "end")


@wf.step
async def kills_its_process() -> None:
    note("kills")
    os.kill(os.getpid(), signal.SIGKILL)


@wf.step
async def too_large(size: int) -> bytes:
    return b"x" * size


@wf.workflow
async def fails_for_good() -> str:
    try:
        await fatal("no way")
    except FatalError as error:
        return f"caught {error}"
    return "not reached"


@wf.workflow
async def retries(failures: int) -> int:
    return await flaky(failures)


@wf.workflow
async def exhausts() -> str:
    try:
        await flaky(99)
    except FatalError as error:
        return f"{type(error.__cause__).__name__}: {error.__cause__}"
    return "not reached"


@wf.workflow
async def waits_as_told() -> float:
    return await when_it_says()


@wf.workflow
async def times_out() -> str:
    try:
        await too_slow()
    except FatalError as error:
        return "timed out" if isinstance(error.__cause__, StepTimeoutError) else "otherwise"
    return "not reached"


@wf.workflow
async def survives_an_exit() -> str:
    try:
        await exits()
    except RemoteError as error:
        return f"{error.type_name} {error.message}"
    return "not reached"


@wf.workflow
async def blocked() -> str:
    await blocks_the_loop(3.5)
    return await mark("after")


@wf.workflow
async def crashes_every_time() -> str:
    try:
        await kills_its_process()
    except StepCrashedError as error:
        return f"given up after {error.crashes}"
    return "not reached"


@wf.workflow
async def carries_too_much(size: int) -> str:
    try:
        await too_large(size)
    except SerializationError:
        return "too large"
    return "fits"


@wf.workflow
async def raises(text: str) -> None:
    await mark("before")
    raise ValueError(text)


# --- ends ---------------------------------------------------------------------------------------------


@wf.workflow
async def cleans_up() -> str:
    try:
        await held("a")
    finally:
        await mark("cleaned-1")
        await mark("cleaned-2")
    return "not cancelled"


@wf.workflow
async def sleeps_long() -> None:
    try:
        await sleep("30 days")
    finally:
        await mark("cleaned")


@wf.step(cancellable=True)
async def listens() -> str:
    async with lasting("listens"):
        while not is_cancelled():  # noqa: ASYNC110 - as a step looks
            await asyncio.sleep(0.01)
    return "heard"


@wf.workflow
async def cancels_a_listening_step() -> str:
    await listens()
    return "not cancelled"


# --- children -----------------------------------------------------------------------------------------


@wf.workflow
async def parent_of_marks() -> list[str]:
    return list(await asyncio.gather(child_mark("x"), child_mark("y")))


@wf.workflow
async def child_mark(what: str) -> str:
    return await mark(what)


@wf.workflow
async def parent_of_a_failure() -> str:
    try:
        await raises("inside")
    except WorkflowRunFailedError as error:
        return f"{type(error.__cause__).__name__}: {error.__cause__}"
    return "not reached"


@wf.workflow
async def parent_of_cleans_up() -> str:
    return await cleans_up()


@wf.workflow
async def parent_of_a_cancelled_child() -> str:
    child = await start(cleans_up)
    try:
        return await child.return_value()
    except RunCancelledError:
        return "the child was cancelled"


@wf.workflow
async def parent_that_lets_go() -> str:
    child = await start(one_held_step.with_options(detach=True))
    return child.run_id


# --- hooks ----------------------------------------------------------------------------------------------


@wf.workflow
async def collects() -> list[str]:
    words: list[str] = []
    async with Go.wait() as hook:
        async for go in hook:
            if go.word == "stop":
                break
            words.append(await mark(go.word))
    return words


@wf.workflow
async def named_hook(token: str) -> str:
    async with Go.wait(token=token) as hook:
        holder = await hook.get_conflict()
        if holder is not None:
            try:
                await hook
            except HookConflictError as error:
                return f"held by {error.conflicting_run_id}"
        return (await hook).word


@wf.workflow
async def closes_its_hook() -> str:
    hook = Go.wait()
    first = await hook
    hook.dispose()
    await held("after")
    return first.word


# --- versions -------------------------------------------------------------------------------------------


@wf.workflow(name="versioned", version=1)
async def versioned_1() -> str:
    await held("a")
    return "one"


@wf.workflow(name="versioned", version=2)
async def versioned_2() -> str:
    return "two"


# --- many -----------------------------------------------------------------------------------------------


@wf.workflow
async def three_marks(name: str) -> str:
    for i in range(3):
        await work(f"{name}-{i}", 0.01)
    return name


@wf.workflow
async def mixed(name: str) -> str:
    """Inline steps, queued ones, a timer."""
    await work(f"{name}-0", 0.05)
    await asyncio.gather(*(work(f"{name}-{i}", 0.05) for i in range(1, 6)))
    await sleep(0.1)
    await work(f"{name}-6", 0.05)
    return name


MIXED_STEPS = 7


# --- what not every build can take on -------------------------------------------------------------


@wf.workflow
async def calls_and_waits() -> list[str]:
    """Another build (see `changed`) has other calls where this one waits."""
    first = await mark("first")
    async with Go.wait() as hook:
        go = await hook
    return [first, go.word, await mark("last")]


@wf.workflow
async def needs_a_new_step() -> str:
    return await held_elsewhere("a")


@wf.workflow
async def catches_the_side() -> str:
    try:
        return await held_elsewhere("a")
    except WorkflowError as error:
        return str(error)


bare = Workflows()
"""Knows no workflow and no step."""

changed = Workflows()
"""A build whose body has changed under its running runs."""


@changed.workflow(name="calls_and_waits")
async def calls_and_waits_changed() -> list[str]:
    await sleep(0.01)
    return ["changed"]


@changed.step(name="mark")
async def mark_changed(what: str) -> str:
    note(f"changed-{what}")
    return what
