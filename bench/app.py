"""The workflows that are measured. Their steps do nothing but note the time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from worker import BaseHook, Workflows, sleep

from .marks import mark as write_mark

wf = Workflows()
_stamps: dict[str, list[int]] = {}  # of the runs of this process, by label


@dataclass
class Go(BaseHook):
    """What a waiting run is sent."""


# --- steps -----------------------------------------------------------------------------------------


@wf.step
async def stamp(label: str) -> None:
    """Note the time (ns). It takes none: its start is its end."""
    now = time.monotonic_ns()
    _stamps.setdefault(label, []).append(now)


@wf.step
async def carry(label: str, data: str) -> str:
    """The same, with a payload in and out."""
    now = time.monotonic_ns()
    _stamps.setdefault(label, []).append(now)
    return data


@wf.step
async def collect(label: str) -> list[int]:
    """The stamps of a run; forgets them."""
    return _stamps.pop(label, [])


@wf.step
async def nothing(number: int) -> int:
    return number


@wf.step
async def mark() -> None:
    write_mark()


# --- workflows -------------------------------------------------------------------------------------


@wf.workflow
async def in_a_row(label: str, steps: int) -> list[int]:
    for _ in range(steps):
        await stamp(label)
    return await collect(label)


@wf.workflow
async def at_once(label: str, steps: int) -> list[int]:
    await asyncio.gather(*(stamp(label) for _ in range(steps)))
    return await collect(label)


@wf.workflow
async def carrying(label: str, data: str, steps: int) -> list[int]:
    for _ in range(steps):
        data = await carry(label, data)
    return await collect(label)


@wf.workflow
async def doing_nothing(steps: int) -> None:
    for number in range(steps):
        await nothing(number)


@wf.workflow
async def three_steps(number: int) -> int:
    number = await nothing(number)
    number = await nothing(number)
    await mark()
    return number


@wf.workflow
async def nap(label: str, seconds: float) -> list[int]:
    await stamp(label)
    await sleep(seconds)
    await stamp(label)
    return await collect(label)


@wf.workflow
async def resumed(label: str, steps: int = 0) -> list[int]:
    """Some steps, then a wait for somebody outside, then a step."""
    for number in range(steps):
        await nothing(number)
    async with Go.wait() as hook:
        await hook
    await stamp(label)
    return await collect(label)
