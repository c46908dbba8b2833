"""What `worker doctor` finds is what a look at the whole partition finds, and it never holds the whole."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import msgpack
import pytest

from tests.lua.kit import Session, StoreKit
from tests.lua.test_ends import _family
from tests.lua.test_sweep import Heard, outlived
from tests.partition import read_partition
from world_redis.liveness import Breach, check
from world_redis.survey import survey
from world_redis.world import RedisWorld

Command: TypeAlias = tuple[str | int | bytes, ...]

_PARKED = msgpack.packb(("why", 1, ""))
RULES = {"liveness", "place", "out", "index", "rescue", "lifetime", "entities", "log"}


async def _lively(kit: StoreKit) -> Session:
    """Runs of all kinds, each where it belongs; answers the one whose step runs."""
    await outlived(kit)
    await kit.hooked(await kit.session())
    working = await kit.session()
    await working.inline("s1")
    await _family(kit)
    await kit.runs.terminate(await kit.start(), b"", retention_ms=60_000)
    await kit.start(due_in=60_000)
    await kit.start()
    return working


async def _agrees(kit: StoreKit) -> set[str]:
    """The rules broken, the same for both."""
    whole: list[Breach] = []
    for deep in (False, True):
        whole = check(await read_partition(kit.world, 0, logs=deep, finished=deep))
        found = (await survey(kit.world, 0, deep=deep)).breaches
        # Of a message in two places each walk has met one.
        assert {(each.rule, each.subject) for each in found} == {(each.rule, each.subject) for each in whole}
    return {breach.rule for breach in whole}


async def test_a_partition_at_work_is_healthy_to_both(kit: StoreKit) -> None:
    await _lively(kit)
    assert await _agrees(kit) == set()


def _commands(world: RedisWorld, waits: str, works: str, over: str, held: str) -> dict[str, list[Command]]:
    """Ways to break it: runs that wait, work and are over, and the message `held` by the second."""
    _, messages, open_key, _, parked_key, _ = world.keys.partition(0)
    queue = world.keys.queue(0, "default")
    return {
        "a header is gone": [("HDEL", messages, held)],
        "a message has no place": [("ZREM", queue.flight, held)],
        "a message is in two places": [("ZADD", queue.delayed, 1, held)],
        "a place has no message": [("XADD", queue.steps, "*", "m", "nobody")],
        "an open run is not in the index": [("ZREM", open_key, waits)],
        "an index names nobody": [("ZADD", open_key, 1, "nobody"), ("HSET", parked_key, "none", _PARKED)],
        "a run is gone": [("DEL", *world.keys.run(0, waits))],
        "a log has lost its end": [("XTRIM", world.keys.run(0, works)[1], "MINID", "2-0")],
        "the entities are gone": [("DEL", world.keys.run(0, works)[2])],
        "a finished run stays for ever": [("PERSIST", world.keys.run(0, over)[0])],
    }


BREAKAGES = sorted(_commands(RedisWorld("redis://nowhere"), "", "", "", ""))


@pytest.mark.parametrize("page", [1, 200])
@pytest.mark.parametrize("breakage", BREAKAGES)
async def test_what_is_broken_is_found_page_by_page_as_well(
    kit: StoreKit, monkeypatch: pytest.MonkeyPatch, breakage: str, page: int
) -> None:
    monkeypatch.setattr("world_redis.pages.PAGE", page)
    monkeypatch.setattr("world_redis.pages.PAGE_WITH_VALUES", page)
    session = await _lively(kit)
    waits, over = await kit.start(), await kit.start()
    await kit.runs.terminate(over, b"", retention_ms=60_000)
    for command in _commands(kit.world, waits, session.run_id, over, session.held.message_id)[breakage]:
        await kit.world.command(*command)
    assert await _agrees(kit)
    kit.tolerated |= RULES


async def test_a_survey_never_holds_a_partition(kit: StoreKit) -> None:
    ids = await asyncio.gather(*(kit.start() for _ in range(1_000)))
    heard = Heard(kit.world)
    found = await survey(heard, 0, deep=True)
    assert found.breaches == []
    assert heard.longest < len(ids)
