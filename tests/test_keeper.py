"""The keeper: what it renews, what it reports, and what it does when the event loop is dead."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from worker.runtime.keeper import STALLED_EXIT_CODE, Holdings, Keeper, Renewer, Words
from world_redis.embedded import EmbeddedServer
from world_redis.ids import new_mark, new_run_id
from world_redis.messages import Delivery, Held, RunContext, RunMessage
from world_redis.queue import NOT_RENEWED, Queue
from world_redis.runs import Runs
from world_redis.world import RedisWorld

LEASE = 0.9  # seconds


class Told(list[tuple[str, int, str]]):
    """What the keeper reported."""

    def __call__(self, message_id: str, number: int, word: str) -> None:
        self.append((message_id, number, word))


@asynccontextmanager
async def connected(url: str, namespace: str) -> AsyncIterator[RedisWorld]:
    async with RedisWorld(url, namespace=namespace, lease=LEASE) as world:
        yield world


@asynccontextmanager
async def keeping(
    world: RedisWorld, holdings: Holdings, told: Callable[..., None], consumer: str = "me", **more: Any
) -> AsyncIterator[Keeper]:
    keeper = Keeper(
        world.url,
        world.keys,
        holdings,
        consumer=consumer,
        lease=LEASE,
        queues=world.queues,
        on_word=told,
        **more,
    )
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()
        await asyncio.to_thread(keeper.join, 5)


async def taken(world: RedisWorld, consumer: str = "me") -> Delivery:
    """A run message in flight."""
    run_id = new_run_id(0)
    context = RunContext("order", 1, 6, "default", 0, run_id)
    await Runs(world).start(run_id, RunMessage(context, os.urandom(16), b"[]", new_mark()), b"")
    batch = await Queue(world, consumer).take(0, ["default"], runs=1, steps=0, empty=True)
    return batch.deliveries[0]


async def deadline(world: RedisWorld, delivery: Delivery) -> float:
    flight = world.keys.queue(0, "default")[2]
    score = await world.command("ZSCORE", flight, delivery.message_id)
    return 0.0 if score is None else float(score)


async def until(condition: Callable[[], Awaitable[bool]], *, within: float = 10) -> None:
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - the store is asked, it does not tell
            await asyncio.sleep(0.01)


async def test_a_delivery_in_flight_is_renewed_past_its_deadline(redis_url: str, namespace: str) -> None:
    async with connected(redis_url, namespace) as world:
        delivery = await taken(world)
        first, holdings, told = await deadline(world, delivery), Holdings(), Told()
        holdings.add(0, delivery.held)
        async with keeping(world, holdings, told):

            async def moved_by_two_leases() -> bool:
                return await deadline(world, delivery) > first + 2000 * LEASE

            await until(moved_by_two_leases)
        assert told == []
        batch = await Queue(world, "other").take(0, ["default"], runs=1, steps=0, empty=True)
        assert batch.deliveries == []


async def test_it_renews_while_the_event_loop_is_busy(redis_url: str, namespace: str) -> None:
    async with connected(redis_url, namespace) as world:
        delivery, holdings, told = await taken(world), Holdings(), Told()
        holdings.add(0, delivery.held)
        async with keeping(world, holdings, told):
            time.sleep(2 * LEASE)  # noqa: ASYNC251 - blocking the loop is the point
            batch = await Queue(world, "other").take(0, ["default"], runs=1, steps=0, empty=True)
            assert batch.deliveries == []


async def test_whatever_it_reports_it_reports_on_the_event_loop(redis_url: str, namespace: str) -> None:
    """Counters and sessions belong to that thread."""
    async with connected(redis_url, namespace) as world:
        delivery, holdings = await taken(world), Holdings()
        holdings.add(0, delivery.held)
        await Runs(world).cancel(delivery.run_id, b"")
        reported: dict[str, set[int]] = {"word": set(), "round trip": set()}

        def report(what: str) -> None:
            reported[what].add(threading.get_ident())

        more: Any = {"on_round_trip": lambda: report("round trip")}
        async with keeping(world, holdings, lambda *_: report("word"), **more):

            async def both() -> bool:
                return all(reported.values())

            await until(both)
        here = {threading.get_ident()}
        assert reported == {"word": here, "round trip": here}


async def test_a_dropped_delivery_is_renewed_no_longer(redis_url: str, namespace: str) -> None:
    async with connected(redis_url, namespace) as world:
        delivery, holdings, told = await taken(world), Holdings(), Told()
        holdings.add(0, delivery.held)
        holdings.drop(0, delivery.held)
        other = Queue(world, "other")
        async with keeping(world, holdings, told):

            async def handed_out_again() -> bool:
                batch = await other.take(0, ["default"], runs=1, steps=0, empty=True)
                return bool(batch.deliveries)

            await until(handed_out_again)


async def test_a_cancel_is_reported_once_and_the_delivery_kept(redis_url: str, namespace: str) -> None:
    async with connected(redis_url, namespace) as world:
        delivery, holdings, told = await taken(world), Holdings(), Told()
        holdings.add(0, delivery.held)
        await Runs(world).cancel(delivery.run_id, b"")
        first = await deadline(world, delivery)
        async with keeping(world, holdings, told):

            async def renewed_often() -> bool:
                return await deadline(world, delivery) > first + 1500 * LEASE

            await until(renewed_often)
        assert delivery.held in holdings
        assert told == [(delivery.message_id, delivery.number, "cancel")]


@pytest.mark.parametrize(
    ("word", "times"),
    [("ok", 0), ("cancel", 1), ("stop", 1), ("look", 3)],  # look: until the log was read
)
def test_how_often_the_same_word_is_handed_on_in_three_renewals(word: str, times: int) -> None:
    holdings, held = Holdings(), Held("m", 1)
    words = Words(holdings)
    holdings.add(0, held)
    told = []
    for _ in range(3):
        assert words.begin() == {0: [held]}
        told += words.to_hand_on(0, [held], [word])
    assert told == times * [(held, word)]


@pytest.mark.parametrize("word", sorted(NOT_RENEWED))
def test_what_is_not_renewed_is_handed_on_and_held_no_longer(word: str) -> None:
    holdings, lost, kept = Holdings(), Held("m", 1), Held("m2", 1)
    for each in (lost, kept):
        holdings.add(0, each)
    words = Words(holdings)
    assert words.to_hand_on(0, [lost, kept], [word, "ok"]) == [(lost, word)]
    assert words.begin() == {0: [kept]}


def test_what_was_told_of_a_delivery_is_forgotten_with_it() -> None:
    holdings, held = Holdings(), Held("m", 1)
    words = Words(holdings)
    for _ in range(2):
        holdings.add(0, held)
        words.begin()
        assert words.to_hand_on(0, [held], ["cancel"]) == [(held, "cancel")]
        holdings.drop(0, held)
        words.begin()


async def test_a_delivery_taken_over_is_reported_and_dropped(redis_url: str, namespace: str) -> None:
    async with connected(redis_url, namespace) as world:
        delivery, holdings, told = await taken(world), Holdings(), Told()
        await Queue(world, "me").defer(0, [delivery.held])
        await Queue(world, "other").take(0, ["default"], runs=1, steps=0, empty=True)
        holdings.add(0, delivery.held)
        async with keeping(world, holdings, told):

            async def reported() -> bool:
                return bool(told)

            await until(reported)
        assert told == [(delivery.message_id, delivery.number, "superseded")]
        assert delivery.held not in holdings


async def test_what_the_url_says_of_replies_and_time_outs_does_not_reach_it(
    redis_url: str, namespace: str
) -> None:
    async with connected(redis_url, namespace) as world:
        delivery = await taken(world)
        odd = (
            f"{redis_url}{'&' if '?' in redis_url else '?'}decode_responses=True&protocol=3&max_connections=1"
        )
        renewer = Renewer(odd, world.keys, "me", timeout=1, queues=world.queues)
        assert renewer.renew(0, [delivery.held]) == ["ok"]
        renewer.close()


async def test_it_goes_on_after_an_error_nobody_thought_of(
    redis_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(redis_url, namespace) as world:
        delivery, holdings, told = await taken(world), Holdings(), Told()
        first = await deadline(world, delivery)
        holdings.add(0, delivery.held)
        holdings.add(7, Held("m", object()))  # type: ignore[arg-type]  # nothing that can be sent
        async with keeping(world, holdings, told):

            async def moved() -> bool:
                return await deadline(world, delivery) > first and "cannot renew" in caplog.text

            await until(moved)


async def test_it_renews_again_after_the_server_was_restarted(
    private_server: EmbeddedServer, namespace: str
) -> None:
    async with connected(private_server.url, namespace) as world:
        delivery, holdings, told = await taken(world), Holdings(), Told()
        holdings.add(0, delivery.held)
        async with keeping(world, holdings, told):
            await asyncio.to_thread(private_server.restart)
            first = await deadline(world, delivery)

            async def renewed() -> bool:
                return await deadline(world, delivery) > first

            await until(renewed)
        assert told == []


def test_holdings_know_a_delivery_by_its_number() -> None:
    holdings = Holdings()
    holdings.add(7, Held("m1", 1))
    holdings.add(7, Held("m1", 2))
    assert Held("m1", 1) not in holdings and Held("m1", 2) in holdings
    holdings.drop(7, Held("m1", 1))
    assert holdings.snapshot() == {7: [Held("m1", 2)]}
    holdings.drop(7, Held("m1", 2))
    assert holdings.snapshot() == {} and len(holdings) == 0


STALLED = """
import asyncio, sys, time
from world_redis.keys import Keys
from worker.runtime.keeper import Holdings, Keeper

async def main():
    keeper = Keeper("unix:///nowhere", Keys("x"), Holdings(), consumer="me", lease=3,
                    queues=lambda partition: [], on_word=print, stall_after=float(sys.argv[1]))
    keeper.start()
    await asyncio.sleep(0.5)
    assert keeper.healthy
    print("blocking", flush=True)
    def a_step_that_hangs(): time.sleep(float(sys.argv[2]))
    a_step_that_hangs()
    await asyncio.sleep(0.5)
    assert keeper.healthy and keeper.silent_for < 0.5
    print("survived", flush=True)

asyncio.run(main())
"""


def run_stalled(stall_after: float, blocked_for: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", STALLED, str(stall_after), str(blocked_for)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_loop_that_never_answers_ends_the_process_with_its_stacks() -> None:
    done = run_stalled(1.5, 60)
    assert done.returncode == STALLED_EXIT_CODE
    assert "survived" not in done.stdout
    assert "has not answered for 1." in done.stderr  # said early, with the place
    assert "WORKFLOW_LOOP_STALL_SECONDS" in done.stderr
    assert done.stderr.count("a_step_that_hangs") >= 2  # in the early line and in the final dump


@pytest.mark.slow
def test_a_loop_that_answers_again_in_time_goes_on() -> None:
    done = run_stalled(30, 1.5)
    assert (done.returncode, done.stdout.split()) == (0, ["blocking", "survived"]), done.stderr
    assert "has not answered for 1." in done.stderr
