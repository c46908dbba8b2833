"""What a sweep looks at, and what that costs."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.lua.kit import Session, StoreKit
from tests.lua.test_ends import _family
from worker.runtime.sweeper import RESTS, Pace
from world_redis.scripts import ScriptCall
from world_redis.sweep import sweep
from world_redis.world import RedisWorld


class Heard:
    """A caller that notes what is asked, and the longest list it is answered."""

    def __init__(self, world: RedisWorld) -> None:
        self._world, self.keys = world, world.keys
        self.asked: list[tuple[bytes | str | int, ...]] = []
        self.longest = 0

    async def __call__(self, call: ScriptCall) -> list[Any]:
        return await self._world(call)

    async def command(self, *args: bytes | str | int) -> object:
        self.asked.append(args)
        reply = await self._world.command(*args)
        if isinstance(reply, list):
            self.longest = max(
                self.longest, len(reply), *(len(part) for part in reply if isinstance(part, list))
            )
        return reply


async def _sighted(kit: StoreKit) -> list[str]:
    return list((await sweep(kit.world, 0, {})).sightings)


async def outlived(kit: StoreKit) -> Session:
    """A run at work whose wake is no longer in its `out`: a later one was there, and is settled."""
    session = await kit.session()
    await kit.hooked(session)
    await kit.resume(session.run_id)
    later = await kit.take_one()
    await session.send()
    await session.send(settles=[later.held])
    await kit.hooked(session, "h2")
    assert await kit.waiting(session.run_id) == {"wake*": "f"}
    return session


# --- whom it finds ----------------------------------------------------------------------------------


async def test_a_delivery_that_only_its_place_names_carries_a_run_on(kit: StoreKit) -> None:
    await outlived(kit)
    assert await _sighted(kit) == []


@pytest.mark.parametrize(("due_in", "place"), [(0, "r"), (60_000, "d")])
async def test_and_so_it_does_when_it_was_given_back(kit: StoreKit, due_in: int, place: str) -> None:
    session = await outlived(kit)
    await kit.queue().defer(0, [session.held], due_in=due_in)
    assert await kit.waiting(session.run_id) == {"wake*": place}
    assert await _sighted(kit) == []


async def test_without_it_the_run_is_found(kit: StoreKit) -> None:
    session, world = await outlived(kit), kit.world
    await kit.session()
    id = session.held.message_id
    await world.command("HDEL", world.keys.partition(0)[1], id, f"{id}:p")
    await world.command("ZREM", world.keys.queue(0, "default").flight, id)
    assert await _sighted(kit) == [session.run_id], "and not the one at work"
    kit.tolerated.add("liveness")


async def test_a_parent_may_wait_for_a_child_that_lives(kit: StoreKit) -> None:
    parent, child = await _family(kit)
    assert await _sighted(kit) == []
    await kit.world.command("ZREM", kit.world.keys.partition(0)[2], child)
    assert await _sighted(kit) == [parent.run_id]
    kit.tolerated |= {"index", "liveness"}


# --- what it costs ----------------------------------------------------------------------------------


async def _terminated(kit: StoreKit) -> None:
    run_id = await kit.start()
    await kit.runs.terminate(run_id, b"", retention_ms=60_000)


async def test_finished_runs_cost_a_sweep_nothing(kit: StoreKit) -> None:
    await kit.session()
    before, after = Heard(kit.world), Heard(kit.world)
    await sweep(before, 0, {})
    await asyncio.gather(*(_terminated(kit) for _ in range(100)))
    await sweep(after, 0, {})
    assert after.asked == before.asked


@pytest.mark.parametrize("due_in", [0, 3_600_000], ids=["a backlog", "delayed starts"])
async def test_a_sweep_never_holds_all_open_runs(kit: StoreKit, due_in: int) -> None:
    ids = await asyncio.gather(*(kit.start(due_in=due_in) for _ in range(1_000)))
    # Its message is not found through its `out`: where messages wait is walked too.
    await kit.world.command("HDEL", kit.world.keys.run(0, ids[-1])[3], "wake")
    heard = Heard(kit.world)
    assert (await sweep(heard, 0, {})).sightings == {}
    assert heard.longest < len(ids)
    kit.tolerated.add("out")


async def test_a_sweep_rests_after_every_page(kit: StoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("world_redis.pages.PAGE", 20)
    await asyncio.gather(*(kit.start() for _ in range(200)))  # a small set is answered whole
    heard, rests = Heard(kit.world), list[int]()

    async def rest() -> None:
        rests.append(len(heard.asked))

    await sweep(heard, 0, {}, rest=rest)
    assert len(rests) >= 5
    assert max(after - before for before, after in pairwise([0, *rests])) < len(heard.asked) / 3


async def test_a_job_keeps_to_its_share_of_the_time() -> None:
    clock, slept = [100.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    pace = Pace(lambda: clock[0], sleep)
    for worked in (2.0, 0.5):
        clock[0] += worked
        await pace.rest()
    assert slept == [2.0 * RESTS, 0.5 * RESTS]
