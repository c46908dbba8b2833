"""Workflows with what the outside does to them, to be performed under all kinds of trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
import pytest

from tests.engine import app
from tests.engine.kit import Stage
from worker import WorkflowDefinition
from worker.core.records import CancelRequested, HookReceived, pack
from world_redis.events import Event, EventType
from world_redis.ids import is_run_id
from world_redis.runs import Runs


@dataclass(frozen=True)
class Play:
    workflow: WorkflowDefinition[..., Any]
    status: str = "completed"
    args: tuple[Any, ...] = ()
    meddle: Callable[[Stage, str], Awaitable[None]] | None = None  # what the outside does, again and again


async def send_a_word(stage: Stage, run_id: str) -> None:
    payload = orjson.dumps({"word": "go"})
    await stage.resume(run_id, "r1", pack(HookReceived(payload, "r1")))


async def send_two_words(stage: Stage, run_id: str) -> None:
    """Both before anybody looks: the second is in the log, and too late."""
    for resume_id, word in (("r1", "go"), ("r2", "late")):
        payload = orjson.dumps({"word": word})
        await stage.resume(run_id, resume_id, pack(HookReceived(payload, resume_id)))


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
        Play(app.hears_one_word, meddle=send_two_words),
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


class Performance:
    """One play on a stage of its own."""

    def __init__(self, stage: Stage, play: Play, run_id: str) -> None:
        self.stage, self.play, self.run_id = stage, play, run_id

    @staticmethod
    async def begin(stage: Stage, play: Play) -> Performance:
        return Performance(stage, play, await stage.start(play.workflow, *play.args))

    async def over(self) -> bool:
        """Has the run, or the one that carries it on, ended? The outside has its say first."""
        if self.play.meddle is not None:
            await self.play.meddle(self.stage, self.run_id)
        return await self.stage.finished(await last_of(self.stage, self.run_id))

    async def written(self, *, lives: int) -> Written:
        """Check what `lives` processes have left behind, and say what it is."""
        snapshot = await self.stage.read(await last_of(self.stage, self.run_id))
        assert snapshot.status == self.play.status
        assert await self.stage.breaches() == []
        once_each(snapshot.events)
        bodies = Counter(what for run, what in app.effects if run == self.run_id)
        assert max(bodies.values(), default=0) <= lives, f"more bodies than processes: {bodies}"
        decided = sorted((e.type.value, e.id) for e in snapshot.events if e.decisive)
        result = snapshot.events[-1].data if self.play.status == "completed" else b""
        return Written(decided, result, [(e.type.value, e.id) for e in snapshot.events])


class Written(NamedTuple):
    decided: list[tuple[str, str]]  # decisive events, sorted
    result: bytes
    log: list[tuple[str, str]]  # all events, in order


async def last_of(stage: Stage, run_id: str) -> str:
    """The run that carries on for this one."""
    while True:
        record = (await stage.read(run_id)).record
        heir = record.get("continued_to", b"").decode()
        if not is_run_id(heir):
            return run_id
        run_id = heir


def once_each(events: Sequence[Event]) -> None:
    ends = Counter(e.id for e in events if e.type in (EventType.STEP_COMPLETED, EventType.STEP_FAILED))
    assert set(ends.values()) <= {1}, f"ended twice: {ends}"
