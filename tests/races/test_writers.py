"""Many writers at once, each with a connection of its own."""

import asyncio

from tests.lua.kit import A, E, Session, StoreKit
from world_redis.events import Event
from world_redis.hooks import HookAddress, Hooks
from world_redis.log import Log
from world_redis.messages import Kind
from world_redis.queue import Queue
from world_redis.transition import Decision, Send


async def test_fifty_writers_make_one_dense_log_and_every_reader_sees_a_prefix(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    worlds = [await kit.another_world() for _ in range(10)]
    pages: list[list[Event]] = []

    async def write(number: int) -> None:
        hooks = Hooks(worlds[number % len(worlds)])
        for turn in range(4):
            answer, _ = await hooks.resume(
                HookAddress(session.run_id, "h1"), "token-h1", f"{number}-{turn}", b"x"
            )
            assert answer is A.OK

    async def read(number: int) -> None:
        log = Log(worlds[number], "reader")
        while True:
            page = await log.read(session.run_id)
            assert page is not None
            pages.append(page.events)
            if page.head == 3 + 200:
                return

    await asyncio.gather(*(write(number) for number in range(50)), *(read(number) for number in range(3)))
    whole = pages[-1]
    assert [event.slot for event in whole] == list(range(1, 204))
    assert all(page == whole[: len(page)] for page in pages)


async def test_of_many_claimers_of_a_step_one_gets_it(kit: StoreKit) -> None:
    session = await kit.session()
    await session.send(decisions=[Decision(E.STEP_CREATED, "s1")])
    await kit.hooked(session)
    sessions = [session]
    for number in range(2, 8):
        await kit.resume(session.run_id, f"r{number}")
        sessions.append(Session(kit, session.run_id, await kit.take_one(f"c{number}"), f"c{number}"))
    replies = await asyncio.gather(
        *(s.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")]) for s in sessions)
    )
    assert sorted(reply.decisions[0] for reply in replies) == sorted([A.OK, *[A.OWNED] * 6])


async def test_of_many_takers_one_gets_a_message(kit: StoreKit) -> None:
    session = await kit.session()
    ids = [f"s{number}" for number in range(1, 101)]
    await session.send(
        decisions=[Decision(E.STEP_CREATED, id) for id in ids],
        sends=[Send(Kind.STEP, id, "default") for id in ids],
    )
    worlds = [await kit.another_world() for _ in range(5)]

    async def take(number: int) -> list[str]:
        got: list[str] = []
        queue = Queue(worlds[number % 5], f"c{number}")
        while True:
            taken = await queue.take(0, ["default"], runs=9, steps=3, empty=True)
            if not taken.deliveries:
                return got
            got += [delivery.key for delivery in taken.deliveries]

    got = await asyncio.gather(*(take(number) for number in range(10)))
    assert sorted(key for part in got for key in part) == sorted(ids)
