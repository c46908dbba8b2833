"""A step message whose step is not started says what it saw; a run not begun yet drops nothing."""

from __future__ import annotations

import pytest

from tests.lua.kit import A, E, Session, StoreKit
from world_redis.messages import Kind
from world_redis.transition import Decision, Send


@pytest.mark.parametrize(
    ("end", "status"),
    [(E.RUN_COMPLETED, "completed"), (E.RUN_FAILED, "failed"), (E.RUN_CANCELLED, "cancelled")],
)
async def test_an_early_exit_tells_how_the_run_ended(kit: StoreKit, end: E, status: str) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    delivery = await kit.take_one("c2")
    await session.send(decisions=[Decision(end)], settles=[session.held])
    claim = await kit.claim("c2", delivery)
    assert (claim.answer, claim.run_status) == (A.EXPIRED, status)
    assert await kit.waiting(session.run_id) == {}


async def test_an_early_exit_of_an_ended_step_tells_that_the_run_goes_on(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    delivery = await kit.take_one("c2")
    await session.send(facts=[session.done("s1")], learn=False)
    claim = await kit.claim("c2", delivery)
    assert (claim.answer, claim.run_status) == (A.EXISTS, "running")


async def test_a_run_that_has_not_begun_yet_drops_no_step(kit: StoreKit) -> None:
    """Pending is not running, and no reason to do nothing."""
    run_id = await kit.start()
    session = Session(kit, run_id, await kit.take_one(), seen=1)
    await kit.queued_step(session)
    delivery = await kit.take_one("c2")
    claim = await kit.claim("c2", delivery)
    assert (claim.answer, claim.run_status) == (A.OK, "pending")


async def test_a_parked_run_drops_no_step(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    delivery = await kit.take_one("c2")
    word = await kit.queue().refuse(
        session.run_id,
        [session.held],
        reason="divergence",
        detail="other calls",
        build="b1",
        park_after=0,
        back_in=0,
    )
    assert word == "parked"
    assert (await kit.claim("c2", delivery)).answer is A.OK
