"""Small workflows of every kind, and what their steps did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from worker import (
    BaseHook,
    FatalError,
    RetryPolicy,
    WorkflowRunFailedError,
    Workflows,
    continue_as_new,
    get_step_metadata,
    patched,
    sleep,
    start,
)

wf = Workflows()
effects: list[tuple[str, str]] = []
"""(run id, what) of every step body that ran, in this process."""
on_effect: list[Callable[[str], None]] = []
"""Told of every step body as it starts."""


def note(what: str) -> None:
    effects.append((get_step_metadata().run_id, what))
    for tell in on_effect:
        tell(what)


@wf.step
async def mark(what: str) -> str:
    note(what)
    return what


@wf.step(retry=RetryPolicy(max_attempts=3, initial=2, backoff=1, jitter=0))
async def second_time_lucky(what: str) -> str:
    attempt = get_step_metadata().attempt
    note(f"{what}-{attempt}")
    if attempt == 1:
        raise ValueError("not yet")
    return what


@wf.step
async def refuse(what: str) -> None:
    note(what)
    raise FatalError(what)


@dataclass
class Go(BaseHook):
    word: str


@wf.workflow
async def in_a_row() -> list[str]:
    return [await mark("a"), await mark("b"), await mark("c")]


@wf.workflow
async def fan_out() -> list[str]:
    """Three inline, two queued, then one more."""
    done = await asyncio.gather(*(mark(name) for name in "abcde"))
    return [*done, await mark("f")]


@wf.workflow
async def fan_wide(n: int) -> int:
    """Far more steps than may run inline."""
    return len(await asyncio.gather(*(mark(f"{i}") for i in range(n))))


@wf.workflow
async def one_elsewhere() -> str:
    """Its step is queued: other queues are never run inline where they are not served."""
    return await mark.with_options(queue="other")("a")


@wf.workflow
async def naps() -> list[str]:
    first = await mark("a")
    await sleep("10 days")
    return [first, await mark("b")]


@wf.workflow
async def races_a_nap() -> list[str]:
    """A timer dropped because a step was faster."""
    async with asyncio.timeout(3600):
        first = await mark("a")
    return [first, await mark("b")]


@wf.workflow
async def waits_for_a_word() -> list[str]:
    async with Go.wait() as hook:
        first = await mark("a")
        go = await hook
    return [first, go.word, await mark("b")]


@wf.workflow
async def hears_one_word() -> list[str]:
    """Of two payloads it takes the first; its hook is closed when the second one is looked at."""
    async with Go.wait() as hook:
        go = await hook
    return [go.word, await mark("a"), await mark("b")]


@wf.workflow
async def retries() -> list[str]:
    return [await second_time_lucky("a"), await mark("b")]


@wf.workflow
async def survives() -> list[str]:
    try:
        await refuse("a")
    except FatalError as error:
        return [str(error), await mark("b")]
    return []


@wf.workflow
async def has_children() -> list[str]:
    one, two = await asyncio.gather(in_a_row(), fails())
    return [*one, two, await mark("d")]


@wf.workflow
async def short_child() -> str:
    return await mark("x")


@wf.workflow
async def has_a_child() -> list[str]:
    return [await short_child()]


@wf.workflow
async def fails() -> str:
    try:
        return await failing_child()
    except WorkflowRunFailedError as error:
        return str(error.__cause__)


@wf.workflow
async def failing_child() -> str:
    await mark("x")
    raise ValueError("y")


@wf.workflow
async def lets_a_child_go() -> list[str]:
    child = await start(in_a_row)
    first = await mark("d")
    return [first, *await child.return_value()]


@wf.workflow
async def tidies_up() -> list[str]:
    """Is cancelled while it naps."""
    try:
        await mark("a")
        await sleep("1h")
    finally:
        await mark("b")
        await mark("c")
    return []


@wf.workflow
async def goes_on_as_new(left: int) -> list[str]:
    await mark(f"n{left}")
    if left:
        continue_as_new(left - 1)
    return ["done"]


@wf.workflow
async def has_a_patch() -> list[str]:
    first = await mark("a")
    return [first, await mark("new" if patched("p") else "old")]


@wf.workflow
async def many(n: int) -> int:
    for i in range(n):
        await mark(f"{i}")
    return n


@wf.workflow
async def pairs() -> list[str]:
    """Two tasks, each with steps of its own."""

    async def both(name: str) -> str:
        return await mark(f"{name}1") + await mark(f"{name}2")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(both(name)) for name in "ab"]
    return [task.result() for task in tasks]


@wf.workflow
async def two_words() -> list[str]:
    async with Go.wait() as hook:
        return [(await hook).word, await mark("a"), (await hook).word]


@wf.workflow
async def words(n: int) -> list[str]:
    """No steps, so that nothing but words moves it."""
    async with Go.wait() as hook:
        return [(await hook).word for _ in range(n)]
