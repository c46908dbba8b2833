"""A run has one rescue, whoever armed it: an inline start, a claim, a second message, a session."""

from tests.lua.kit import LEASE, A, E, StoreKit
from tests.partition import read_partition
from world_redis.messages import RESCUE, Kind
from world_redis.transition import Decision, Send


async def _rescues(kit: StoreKit) -> list[tuple[str, dict[str, int]]]:
    """Each rescue there is: its id, and the owners it watches with how many steps each runs."""
    state = await read_partition(kit.world, 0)
    found = [each for each in state.messages.values() if each.kind == Kind.RESCUE]
    return [(each.id, dict(each.owners)) for each in found]


async def test_a_run_has_one_rescue_whoever_armed_it(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1", "s2", "s3")
    ((first, owners),) = await _rescues(kit)
    assert owners == {session.held.message_id: 3}, "three running steps arm once"

    for id in ("s4", "s5"):
        await kit.queued_step(session, id)
    claimed = {}
    for delivery in await kit.take("c2"):
        assert (await kit.claim("c2", delivery)).answer is A.OK
        claimed[delivery.message_id] = 1
    assert await _rescues(kit) == [(first, {session.held.message_id: 3} | claimed)]

    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    second = await kit.take_one("c3")
    assert (await kit.claim("c3", second)).answer is A.OWNED
    await session.send(sends=[Send(Kind.RESCUE, RESCUE, "default")])
    assert await _rescues(kit) == [(first, {session.held.message_id: 3} | claimed)]


async def test_a_recovered_step_is_watched_once_under_the_same_message(kit: StoreKit) -> None:
    """The later delivery of the owner's message re-stamps its steps: the message stays the one watched."""
    session = await kit.session()
    await session.inline("s1", "s2")
    before = await _rescues(kit)
    await kit.queue().defer(0, [session.held])
    session.delivery, session.seq = await kit.take_one(), 0
    await session.send(decisions=[Decision(E.STEP_STARTED, id, mode="inline") for id in ("s1", "s2")])
    assert await _rescues(kit) == before


async def test_two_runs_have_a_rescue_each(kit: StoreKit) -> None:
    for _ in range(2):
        session = await kit.session()
        await session.inline("s1", "s2")
    assert len(await _rescues(kit)) == 2
    await kit.clock.advance(LEASE // 3)
    assert await kit.take("c2") == [], "and neither is ever handed out"
