"""More workflows of the application: runs whose steps are somewhere else when they are looked at."""

from __future__ import annotations

import asyncio

from tests.acceptance.app import (
    Go,
    calls_and_waits,
    held,
    held_elsewhere,
    mark,
    one_held_step,
    wf,
)
from worker import RetryPolicy

__all__ = ["calls_and_waits", "wf"]


@wf.step(queue="side", retry=RetryPolicy(max_attempts=2, initial=600, jitter=0))
async def fails_once() -> None:
    raise ValueError("not yet")


@wf.workflow
async def three_held_and_a_hook() -> list[str]:
    """Three inline steps that last, and a payload that may come beside them."""
    async with Go.wait() as hook:
        steps = [asyncio.create_task(held(name)) for name in "abc"]
        go = await hook
        return [await mark(go.word), *await asyncio.gather(*steps)]


@wf.workflow
async def three_held_on_the_side() -> list[str]:
    return list(await asyncio.gather(*(held_elsewhere(name) for name in "abc")))


@wf.workflow
async def mark_on_the_side() -> str:
    return await mark.with_options(queue="side")("a")


@wf.workflow
async def waits_for_others() -> None:
    """A child that lasts, a step nobody serves, one that waits for its retry, one nobody waits for."""
    others = [one_held_step(), mark.with_options(queue="nowhere")("b"), fails_once()]
    tasks = [asyncio.ensure_future(other) for other in others]
    given_up = asyncio.create_task(mark.with_options(queue="nowhere")("c"))
    await asyncio.wait({given_up}, timeout=0.01)
    given_up.cancel()
    await asyncio.gather(*tasks)
