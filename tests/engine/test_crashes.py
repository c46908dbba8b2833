"""A process dies, or sleeps past its lease, at any call: the run finishes, and always had a way forward.

Each play is performed once undisturbed, to count its calls; then once for every call and for both moments of
it, with another process that takes over after the lease.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.engine import app
from tests.engine.kit import LEASE, Cut, Stage
from tests.engine.plays import Performance, Play, Written, every_play

OVER = int(LEASE * 1000) + 1  # ms after which a silent process has lost its deliveries


@contextmanager
def explained(*cuts: Cut) -> Iterator[None]:
    """A failure says what was done to the play."""
    try:
        yield
    except BaseException as error:
        error.add_note(", then ".join(map(str, cuts)))
        raise


async def undisturbed(url: str, play: Play) -> tuple[int, Written]:
    """How many calls the play takes, and what it writes."""
    async with Stage(url, app.wf) as stage:
        performance = await Performance.begin(stage, play)
        process = stage.process()
        await process.work(performance.over)
        await process.leave()
        return len(process.ports.calls), await performance.written(lives=1)


async def with_deaths(url: str, play: Play, *cuts: Cut) -> Written:
    """Each cut ends one process; a last one brings the run home."""
    async with Stage(url, app.wf) as stage:
        performance = await Performance.begin(stage, play)
        for cut in cuts:
            doomed = stage.process(cut=cut)
            await doomed.work(performance.over)
            assert await stage.breaches() == []
            if not doomed.ports.dead.is_set():
                await doomed.leave()
                break
            await stage.clock.forward(OVER)
        heir = stage.process()
        await heir.work(performance.over)
        await heir.leave()
        return await performance.written(lives=1 + len(cuts))


async def with_a_sleeper(url: str, play: Play, cut: Cut) -> Written:
    """One process sleeps past its lease while another finishes the run, then wakes up in the middle of it."""
    async with Stage(url, app.wf) as stage:
        performance = await Performance.begin(stage, play)
        sleeper = stage.process(cut=cut)
        working = await sleeper.work_until_asleep(performance.over)
        assert sleeper.ports.asleep.is_set()
        await stage.clock.forward(OVER)
        heir = stage.process()
        await heir.work(performance.over)
        sleeper.ports.woken.set()
        await working
        await sleeper.leave()
        await heir.leave()
        return await performance.written(lives=2)


def every_cut(calls: int, *, sleeps: bool = False) -> list[Cut]:
    return [Cut(nth, answered, sleeps) for nth in range(1, calls + 1) for answered in (False, True)]


@every_play
async def test_a_process_that_dies_at_any_call_leaves_a_run_that_finishes(redis_url: str, play: Play) -> None:
    calls, expected = await undisturbed(redis_url, play)
    for cut in every_cut(calls):
        with explained(cut):
            written = await with_deaths(redis_url, play, cut)
            assert (written.decided, written.result) == (expected.decided, expected.result)


@every_play
async def test_a_process_that_sleeps_past_its_lease_at_any_call_changes_nothing_when_it_wakes(
    redis_url: str, play: Play
) -> None:
    calls, expected = await undisturbed(redis_url, play)
    for cut in every_cut(calls, sleeps=True):
        with explained(cut):
            written = await with_a_sleeper(redis_url, play, cut)
            assert (written.decided, written.result) == (expected.decided, expected.result)


@every_play
async def test_processes_that_die_one_after_the_other_leave_a_run_that_finishes(
    redis_url: str, play: Play
) -> None:
    calls, _ = await undisturbed(redis_url, play)
    for seed in range(4):
        chance = random.Random(seed)
        cuts = [Cut(chance.randint(1, calls), chance.random() < 0.5) for _ in range(3)]
        with explained(*cuts):
            await with_deaths(redis_url, play, *cuts)
