"""The application whose workers the acceptance tests start, kill, stop and drain."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from worker.sdk.calls import sleep
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows

wf = Workflows()


# --- steps and what they leave behind -----------------------------------------------------------


def note(what: str, phase: str = "") -> None:
    """Write down a side effect: one line, whole or not at all."""
    line = json.dumps({"what": what, "phase": phase, "pid": os.getpid(), "at": time.monotonic()})
    file = os.open(Path(os.environ["TEST_DIRECTORY"], "effects"), os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


async def pass_gate(name: str) -> None:
    gate = Path(os.environ["TEST_DIRECTORY"], f"gate-{name}")
    while not gate.exists():
        await asyncio.sleep(0.01)


@wf.step
async def mark(what: str) -> str:
    """A side effect that takes no time."""
    note(what)
    return what


@wf.step
async def work(what: str, seconds: float) -> str:
    """A side effect that lasts."""
    note(what, "start")
    await asyncio.sleep(seconds)
    note(what, "end")
    return what


@wf.step
async def held(what: str) -> str:
    """A side effect that lasts until the test opens its gate."""
    note(what, "start")
    await pass_gate(what)
    note(what, "end")
    return what


@wf.step(queue="side")
async def held_elsewhere(what: str) -> str:
    """The same, from another queue."""
    note(what, "start")
    await pass_gate(what)
    note(what, "end")
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
