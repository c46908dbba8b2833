"""Durable waits: one timer a run, judged by the store's clock."""

from tests.lua.kit import A, E, StoreKit
from world_redis.messages import Kind
from world_redis.transition import Decision, Fact, Send

HOUR = 3_600_000


def _timer(due_in: int) -> Send:
    return Send(Kind.RUN, "timer", "default", due_in=due_in)


async def test_a_wait_ends_at_its_due_time_and_not_before(kit: StoreKit) -> None:
    session = await kit.session()
    await session.send(decisions=[Decision(E.WAIT_CREATED, "w1", due_in=HOUR)], sends=[_timer(HOUR)])
    await kit.clock.advance(HOUR - 1)
    reply = await session.send(facts=[Fact(E.WAIT_COMPLETED, "w1")])
    assert (reply.answer, reply.facts, reply.events) == (A.STALE, [A.TOO_EARLY], [])
    await kit.clock.advance(1)
    reply = await session.send(facts=[Fact(E.WAIT_COMPLETED, "w1")])
    assert (reply.answer, reply.facts) == (A.OK, [A.OK])
    assert (await session.send(facts=[Fact(E.WAIT_COMPLETED, "w1")])).facts == [A.EXISTS]


async def test_it_is_never_over_before_it_was_due_whatever_the_writers_clock_says(kit: StoreKit) -> None:
    session = await kit.session()
    reply = await session.send(
        decisions=[Decision(E.WAIT_CREATED, "w1", due_in=1_000)], sends=[_timer(1_000)]
    )
    due = int(reply.events[-1].extra)
    await kit.clock.advance(2_000)
    reply = await session.send(facts=[Fact(E.WAIT_COMPLETED, "w1", at=due - 500)])
    assert reply.events[-1].at == due
    await session.send(decisions=[Decision(E.WAIT_CREATED, "w2", due_at=due)], sends=[_timer(0)])
    reply = await session.send(facts=[Fact(E.WAIT_COMPLETED, "w2", at=due + 700)])
    assert reply.events[-1].at == due + 700


async def test_a_wait_nobody_listens_to_goes_without_an_event(kit: StoreKit) -> None:
    session = await kit.session()
    waits = [Decision(E.WAIT_CREATED, f"w{number}", due_in=HOUR) for number in (1, 2)]
    await session.send(decisions=waits, sends=[_timer(HOUR)])
    before = await kit.types(session.run_id)
    reply = await session.send(withdraws=["w1", "w2", "timer"], table=True)
    assert reply.table is not None and reply.table.waits == ()
    assert await kit.types(session.run_id) == before
    assert await kit.waiting(session.run_id) == {"wake": "f"}
    await kit.clock.advance(2 * HOUR)
    assert (await session.send(facts=[Fact(E.WAIT_COMPLETED, "w1")])).facts == [A.EXISTS]


async def test_a_thousand_time_limits_leave_one_timer(kit: StoreKit) -> None:
    session = await kit.session()
    for number in range(1, 51):
        await session.send(
            decisions=[Decision(E.WAIT_CREATED, f"w{number}", due_in=HOUR + number)],
            sends=[_timer(HOUR + number)],
        )
    assert await kit.waiting(session.run_id) == {"wake": "f", "timer": "d"}
    await kit.clock.advance(HOUR)
    await kit.queue().renew(0, [session.held])
    await kit.clock.advance(1)
    assert [delivery.key for delivery in await kit.take("c2") if delivery.key == "timer"] == ["timer"]
