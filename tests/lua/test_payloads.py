"""Payloads are opaque, numbers are exact, pages have a size."""

import os
import threading
import tracemalloc
from collections.abc import ItemsView

import pytest

from tests.lua.kit import START_OF_TIME, A, E, StoreKit
from world_redis.messages import Kind
from world_redis.scripts import pack_lua
from world_redis.transition import Decision, Fact, Send

ODD = [b"", b"\x00", b"\xff\xfe\x00'\"\\{}\n\r", os.urandom(1 << 20)]


@pytest.mark.parametrize("payload", ODD, ids=["empty", "nul", "not text", "1 MiB"])
async def test_payloads_come_back_byte_for_byte(kit: StoreKit, payload: bytes) -> None:
    session = await kit.session()
    reply = await session.send(
        decisions=[Decision(E.STEP_CREATED, "s1", payload)],
        sends=[Send(Kind.STEP, "s1", "default", payload)],
    )
    assert reply.events[-1].data == payload
    delivery = await kit.take_one()
    assert delivery.payload == payload
    claim = await kit.claim("c1", delivery)
    done = Fact(E.STEP_COMPLETED, "s1", payload, epoch=claim.epoch)
    reply = await session.send(facts=[done], seen=claim.epoch.slot)
    assert reply.events[-1].data == payload


class _Meanwhile(dict[str, int]):
    """While it is packed, another thread packs something else."""

    def items(self) -> ItemsView[str, int]:  # type: ignore[override]
        other = threading.Thread(target=pack_lua, args=(["renewal"],))
        other.start()
        other.join()
        return super().items()


def test_what_two_threads_pack_at_once_is_not_mixed() -> None:
    assert pack_lua(["before", _Meanwhile(a=1)]) == pack_lua(["before", {"a": 1}])


def test_what_was_large_is_not_kept_by_what_packs() -> None:
    large = bytes(64 << 20)
    tracemalloc.start()
    try:
        assert len(pack_lua(large)) > len(large)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 8 << 20


async def test_big_integers_stay_exact(kit: StoreKit) -> None:
    big = (1 << 53) - 1
    await kit.clock.set(big - 100_000_000)
    session = await kit.session()
    reply = await session.send(decisions=[Decision(E.WAIT_CREATED, "w1", due_at=big)], table=True)
    assert reply.table is not None and reply.table.waits[0].due == big
    assert reply.events[-1].extra == str(big)
    assert reply.now == big - 100_000_000
    assert reply.events[-1].at == big - 100_000_000


async def test_the_writer_says_when_a_decisive_event_was(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1", "s2")
    reply = await session.send(facts=[session.done("s1", at=START_OF_TIME + 7), session.done("s2")])
    assert [event.at for event in reply.events] == [START_OF_TIME + 7, START_OF_TIME]


async def test_an_answer_carries_at_most_500_events(kit: StoreKit) -> None:
    session = await kit.session()
    for part in range(4):
        ids = [f"s{part * 150 + number}" for number in range(1, 151)]
        await session.send(decisions=[Decision(E.STEP_CREATED, id) for id in ids])
    page = await kit.log().read(session.run_id)
    assert page is not None and len(page.events) == 500 and page.more
    rest = await kit.log().read(session.run_id, seen=page.events[-1].slot)
    assert rest is not None and not rest.more
    assert [event.slot for event in (*page.events, *rest.events)] == list(range(1, 603))
    reply = await session.send(seen=0)
    assert (len(reply.events), reply.more) == (500, True)


async def test_an_answer_carries_at_most_256_kib_and_always_one_event(kit: StoreKit) -> None:
    session = await kit.session()
    for number in range(1, 6):
        await session.send(decisions=[Decision(E.STEP_CREATED, f"s{number}", b"x" * 100_000)])
    await session.send(decisions=[Decision(E.STEP_CREATED, "s6", b"x" * 300_000)])
    seen, sizes, more = 2, [], True
    while more:
        page = await kit.log().read(session.run_id, seen=seen)
        assert page is not None
        seen, more = page.events[-1].slot, page.more
        sizes.append(len(page.events))
    assert sizes == [2, 2, 1, 1]


async def test_a_read_asks_for_no_more_than_it_was_told_to(kit: StoreKit) -> None:
    session = await kit.session()
    page = await kit.log().read(session.run_id, seen=2, record=False)
    assert page is not None
    assert (page.events, page.more, page.record, page.table) == ([], False, {}, None)
    assert await kit.log().read("wrun_01M8M8BKEYY1959AAGM8A2M800") is None
    assert (await session.send(decisions=[Decision(E.RUN_FAILED)])).answer is A.OK
