"""How long an owner has left: never more than the lease, never less than nothing, whatever the clocks say."""

from __future__ import annotations

import pytest

from tests.lua.kit import LEASE, A, Session, StoreKit
from world_redis.messages import Kind
from world_redis.queue import Claim
from world_redis.transition import OpenStep, Send

HOUR = 3_600_000  # ms


async def _owned(kit: StoreKit) -> Session:
    """A run with an inline step of a live owner."""
    session = await kit.session()
    await session.inline("s1")
    return session


async def _claimed_by_another(kit: StoreKit, session: Session) -> Claim:
    await session.send(sends=[Send(Kind.STEP, "s1", "default")], learn=False)
    (delivery,) = [each for each in await kit.take("c2") if each.key == "s1"]
    return await kit.claim("c2", delivery)


async def _seen(kit: StoreKit, session: Session) -> OpenStep:
    snapshot = await kit.log().read(session.run_id, table=True)
    assert snapshot is not None and snapshot.table is not None
    return snapshot.table.steps[0]


@pytest.mark.parametrize("jump", [-HOUR, -LEASE, -1, 0, 1, LEASE // 3, LEASE // 2 - 1])
async def test_a_clock_that_jumps_neither_lengthens_a_lease_nor_makes_it_negative(
    kit: StoreKit, jump: int
) -> None:
    session = await _owned(kit)
    await kit.clock.advance(jump)
    step = await _seen(kit, session)
    assert step.owner_live and 0 < step.lease_left <= LEASE
    claim = await _claimed_by_another(kit, session)
    assert claim.answer is A.OWNED
    assert 0 < claim.retry_in <= LEASE


@pytest.mark.parametrize("jump", [LEASE, HOUR, 1000 * HOUR])
async def test_a_clock_that_jumps_far_ahead_leaves_no_negative_remainder(kit: StoreKit, jump: int) -> None:
    session = await _owned(kit)
    await kit.clock.advance(jump)
    step = await _seen(kit, session)
    assert 0 <= step.lease_left <= LEASE
    assert step.owner_live == (step.lease_left > 0)


@pytest.mark.parametrize("ahead", [LEASE + 1, HOUR, 10**12])
async def test_a_deadline_written_by_another_clock_counts_for_one_lease_at_most(
    kit: StoreKit, ahead: int
) -> None:
    """As left behind by a server whose clock was ahead, and whose data this one has now."""
    session = await _owned(kit)
    flight = kit.world.keys.queue(0, "default")[2]
    await kit.world.command("ZADD", flight, "XX", kit.clock.now + ahead, session.held.message_id)
    assert (await _seen(kit, session)).lease_left == LEASE
    claim = await _claimed_by_another(kit, session)
    assert (claim.answer, claim.retry_in) == (A.OWNED, LEASE)


async def test_a_step_whose_owner_waits_or_is_nowhere_has_nothing_left(kit: StoreKit) -> None:
    session = await _owned(kit)
    assert await kit.queue().defer(0, [session.held]) == ["ok"]
    step = await _seen(kit, session)
    assert (step.owner_live, step.lease_left) == (False, 0)
