"""A process dies between any two calls of a script: the run finishes, and had a way forward all along.

Each play is performed once undisturbed, to count its calls; then once for every call and for both ways of
dying at it, with another process that takes over after the lease.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from tests.engine import app
from tests.engine.kit import Cut, Stage
from world_redis.events import EventType
from world_redis.ids import is_run_id
from world_redis.runs import Runs
from worker import WorkflowDefinition
from worker.core.records import CancelRequested, HookReceived, pack


@dataclass(frozen=True)
class Play:
    workflow: WorkflowDefinition[..., Any]
    status: str = "completed"
    args: tuple[Any, ...] = ()
    meddle: Callable[[Stage, str], Awaitable[None]] | None = None  # what the outside does, again and again


async def send_a_word(stage: Stage, run_id: str) -> None:
    payload = orjson.dumps({"word": "go"})
    await stage.resume(run_id, "r1", pack(HookReceived(payload, "r1")))


async def cancel_the_nap(stage: Stage, run_id: str) -> None:
    table = (await stage.read(run_id)).table
    if table is not None and table.waits:
        await Runs(stage.world).cancel(run_id, pack(CancelRequested("")))


PLAYS = {
    play.workflow.name: play
    for play in (
        Play(app.in_a_row),
        Play(app.fan_out),
        Play(app.pairs),
        Play(app.naps),
        Play(app.races_a_nap),
        Play(app.waits_for_a_word, meddle=send_a_word),
        Play(app.retries),
        Play(app.survives),
        Play(app.has_children),
        Play(app.lets_a_child_go),
        Play(app.tidies_up, "cancelled", meddle=cancel_the_nap),
        Play(app.goes_on_as_new, args=(2,)),
        Play(app.has_a_patch),
    )
}
every_play = pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)


async def perform(url: str, play: Play, *cuts: Cut) -> tuple[int, list[Any]]:
    """Run a play; each cut ends one process. Returns the calls of the last one, and what was written."""
    async with Stage(url, app.wf) as stage:
        run_id = await stage.start(play.workflow, *play.args)
        heir = run_id

        async def over() -> bool:
            if play.meddle is not None:
                await play.meddle(stage, run_id)
            return await stage.finished(await last_of(stage, run_id))

        for cut in cuts:
            doomed = stage.process(cut=cut)
            await doomed.work(over)
            assert await stage.breaches() == []
            if not doomed.ports.dead.is_set():
                await doomed.close()
                break
            await stage.clock.forward(30_001)  # the dead one's lease is over
        process = stage.process()
        await process.work(over)
        await process.rest()
        await process.close()
        heir = await last_of(stage, run_id)
        snapshot = await stage.read(heir)
        assert snapshot.status == play.status
        assert await stage.breaches() == []
        once_each(snapshot.events)
        at_most_twice(run_id, 1 + len(cuts))
        decided = sorted((e.type.value, e.id) for e in snapshot.events if e.decisive)
        result = snapshot.events[-1].data if play.status == "completed" else b""
        return len(process.ports.calls), [decided, result]


async def last_of(stage: Stage, run_id: str) -> str:
    """The run that carries on for this one."""
    while True:
        record = (await stage.read(run_id)).record
        heir = record.get("continued_to", b"").decode()
        if not is_run_id(heir):
            return run_id
        run_id = heir


def once_each(events: list[Any]) -> None:
    ends = Counter(e.id for e in events if e.type in (EventType.STEP_COMPLETED, EventType.STEP_FAILED))
    assert set(ends.values()) <= {1}, f"ended twice: {ends}"


def at_most_twice(run_id: str, lives: int) -> None:
    bodies = Counter(what for run, what in app.effects if run == run_id)
    assert max(bodies.values(), default=0) <= lives, f"more bodies than processes: {bodies}"


@every_play
async def test_a_process_that_dies_at_any_call_leaves_a_run_that_finishes(redis_url: str, play: Play) -> None:
    calls, written = await perform(redis_url, play)
    for nth in range(1, calls + 1):
        for answered in (False, True):
            cut = Cut(nth, answered)
            try:
                _, again = await perform(redis_url, play, cut)
            except BaseException as error:
                error.add_note(f"{cut} of {calls}")
                raise
            assert again == written, cut


@every_play
async def test_processes_that_die_one_after_the_other_leave_a_run_that_finishes(
    redis_url: str, play: Play
) -> None:
    calls, _ = await perform(redis_url, play)
    for seed in range(4):
        chance = random.Random(seed)
        cuts = [Cut(chance.randint(1, calls), chance.random() < 0.5) for _ in range(3)]
        try:
            await perform(redis_url, play, *cuts)
        except BaseException as error:
            error.add_note(f"seed {seed}: {', '.join(map(str, cuts))}")
            raise
