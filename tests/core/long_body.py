"""One workflow that uses everything, and a seeded world that plays it.

Run as a program it prints what the body asked for, so that processes can be compared:
``python -m tests.core.long_body SEED``.
"""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import contextlib
import json
import random as chances
import sys
from dataclasses import dataclass
from typing import Any

from tests.core.player import Player
from worker.core.calls import ChildCall, HookCall, StepCall, WaitCall
from worker.sdk.calls import as_completed, now, patched, random, set_attributes, sleep, uuid4
from worker.sdk.calls import start_child as start
from worker.sdk.errors import FatalError, WorkflowRunFailedError
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows

wf = Workflows()


@dataclass
class Note(BaseHook):
    text: str


@wf.step
async def work(what: str, n: int = 0) -> int: ...


@wf.step(cancellable=True)
async def reserve(n: int) -> int: ...


@wf.step
def pick(names: set[str]) -> list[str]: ...


@wf.workflow
async def part(n: int) -> int: ...


async def tolerant(what: str, n: int) -> int:
    try:
        return await work(what, n)
    except FatalError:
        return -1


async def timed(n: int) -> str:
    try:
        async with asyncio.timeout(10 + n):
            return f"value {await tolerant('timed', n)}"
    except TimeoutError:
        return "late"


async def race(n: int) -> int:
    tasks = {asyncio.create_task(tolerant(f"race {k}", n)) for k in range(4)}
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    # The order of a set of tasks must be the same in every process.
    return sum(task.result() * (place + 1) for place, task in enumerate(done))


async def grouped(n: int) -> str:
    failed = 0
    try:
        async with asyncio.TaskGroup() as group:
            for k in range(3):
                group.create_task(work(f"group {k}", n))
    except* FatalError as errors:
        failed = len(errors.exceptions)
    return f"{failed} failed"


async def guarded(n: int) -> str:
    try:
        return f"reserved {await asyncio.wait_for(reserve(n), 20)}"
    except TimeoutError:
        return "not reserved"
    except FatalError:
        return "refused"


@wf.workflow
async def everything(n: int) -> list[Any]:
    out: list[Any] = [str(uuid4()), random().randrange(1000)]
    new = patched("more")
    await set_attributes({"phase": "one"})
    async with Note.wait() as note, Note.wait(token="taken") as other:
        out.append(await other.get_conflict())
        out.append(await asyncio.gather(*(tolerant("all", k) for k in range(3))))
        out.append(await asyncio.gather(race(1), race(2), timed(3)))
        child = start(part, n)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1800):
                out.append((await note).text)
        if new:
            await sleep("1m")
        both = {asyncio.gather(timed(1), timed(2)), asyncio.gather(guarded(1), timed(4))}
        done, _ = await asyncio.wait(both)
        out.extend(each.result() for each in done)
        try:
            out.append(await child.return_value())
        except WorkflowRunFailedError as error:
            out.append(repr(error.__cause__))
    out.append(await grouped(1))
    out.append([await each for each in as_completed([timed(5), timed(6), guarded(2)])])
    with contextlib.suppress(WorkflowRunFailedError):
        out.append(await part(n + 1))
    await set_attributes({"phase": "two"})
    out.append(await tolerant("last", len(out)))
    out.append(now().isoformat())
    return out


def play(seed: int, *, live: bool = True, cancel: bool = False) -> Player:
    """Let the world answer in a random order until the body has ended."""
    chance = chances.Random(seed)
    player = Player(everything, 7, live=live)
    moves = 0
    while player.body.outcome is None:
        assert player.body.problem is None, player.body.problem
        moves += 1
        assert moves < 500
        if cancel and moves == 1 + seed % 25:
            player.cancel("chance")
            continue
        id = chance.choice(sorted(player.body.open))
        answer(player, id, chance)
    return player


def answer(player: Player, id: str, chance: chances.Random) -> None:
    call = player.body.open[id]
    if isinstance(call, WaitCall):
        if chance.random() < 0.4:
            player.fire(id)
    elif isinstance(call, HookCall):
        if chance.random() < 0.3:
            player.receive(id, Note(f"note {chance.randrange(100)}"))
    elif chance.random() < 0.2:
        player.fail(id, ValueError(id))
    elif isinstance(call, StepCall | ChildCall):
        player.complete(id, chance.randrange(1000))


def story(player: Player) -> str:
    """Everything the body asked for and how it ended."""
    issued = [[str(part) for part in call] for call in player.issued[player.body]]
    return json.dumps([issued, str(player.body.outcome), len(player.log)])


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        print(story(play(number)))
