"""The one entry per run that notices when the owner of a running step is gone."""

from tests.lua.kit import LEASE, A, E, Session, StoreKit
from tests.lua.test_claims import _lose
from world_redis.messages import Kind
from world_redis.transition import Decision, Fact, Send


async def _rescued(kit: StoreKit) -> int:
    return int(await kit.world.command("HGET", kit.world.keys.partition(0)[0], "rescues") or 0)


async def _lose_owner(kit: StoreKit, session: Session) -> None:
    """Somebody deletes the message that owns the running steps; its worker is dead too."""
    await _lose(kit, session.run_id, "wake")


async def test_it_is_armed_with_the_start_and_goes_with_the_last_end(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1", "s2")
    armed = await kit.waits_under(session.run_id, "rescue")
    assert armed
    await session.inline("s3")
    assert await kit.waits_under(session.run_id, "rescue") == armed, "one for all"
    for id in ("s1", "s3"):
        await session.send(facts=[session.done(id)])
        assert "rescue" in await kit.waiting(session.run_id)
    await session.send(facts=[session.done("s2")])
    assert "rescue" not in await kit.waiting(session.run_id)


async def test_steps_that_follow_each_other_leave_it_alone(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    armed = await kit.waits_under(session.run_id, "rescue")
    await session.send(
        facts=[session.done("s1")],
        advanced=True,
        decisions=[Decision(E.STEP_CREATED, "s2"), Decision(E.STEP_STARTED, "s2", mode="inline")],
    )
    assert await kit.waits_under(session.run_id, "rescue") == armed
    assert await kit.waiting(session.run_id) == {"wake": "f", "rescue": "d"}


async def test_while_the_owner_lives_it_moves_on(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    for _ in range(4):
        await kit.lease_passes(short_of=10)
        assert await kit.queue().renew(0, [session.held]) == ["ok"]
        assert await kit.take("c2") == []
    assert await _rescued(kit) == 0


async def test_a_redelivered_owner_is_a_living_owner(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await kit.lease_passes()
    assert [d.key for d in await kit.take("c2")] == ["wake"]
    assert await _rescued(kit) == 0


async def test_when_the_owner_is_gone_the_run_is_woken_and_the_step_is_for_others(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await _lose_owner(kit, session)
    await kit.lease_passes()
    wake = await kit.take_one("c2")
    assert (wake.kind, wake.key, wake.payload) == (Kind.RUN, "wake", b"rescue")
    other = Session(kit, session.run_id, wake, "c2")
    reply = await other.send(sends=[Send(Kind.STEP, "s1", "default")], table=True)
    assert reply.table is not None and not reply.table.steps[0].owner_live
    claim = await kit.claim("c2", await kit.take_one("c2"))
    assert (claim.answer, claim.crashes) == (A.OK, 1)
    assert await _rescued(kit) == 1


async def test_it_looks_again_but_does_not_pile_up_wakes(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await _lose_owner(kit, session)
    for _ in range(5):
        await kit.lease_passes()
        await kit.take("full", runs=0, steps=0)
    assert await _rescued(kit) == 1
    assert await kit.waiting(session.run_id) == {"rescue": "d", "wake*": "r"}
    (wake,) = await kit.take("c2")
    await kit.queue("c2").defer(0, [wake.held], due_in=LEASE * 3)
    await kit.lease_passes()
    await kit.take("full", runs=0, steps=0)
    assert await _rescued(kit) == 1, "the wake was put off, it is not gone"


async def test_an_owner_that_has_lapsed_is_left_to_its_own_redelivery(kit: StoreKit) -> None:
    """Also where another queue's worker looks at the rescue before the owner's own takes the message."""
    session = await kit.session()
    await session.send(decisions=[Decision(E.STEP_CREATED, "s1")], sends=[Send(Kind.STEP, "s1", "side")])
    await kit.claim("c2", await kit.take_one("c2", queue="side"))
    await kit.clock.advance(LEASE // 2)
    await kit.queue("onlooker").take(0, ["default", "side"], runs=0, steps=0, empty=True)
    await kit.queue().renew(0, [session.held])
    await kit.clock.advance(LEASE)
    await kit.queue().renew(0, [session.held])
    assert await kit.take("c3") == [] and await _rescued(kit) == 0
    again = await kit.take_one("c4", queue="side")
    assert (await kit.claim("c4", again)).crashes == 1


async def test_a_parked_run_is_not_woken(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await kit.queue().refuse(
        session.run_id, [session.held], reason="X", detail="", build="b", park_after=0, back_in=0
    )
    await kit.lease_passes()
    assert await kit.take("c2") == []
    await kit.runs.unpark(session.run_id)
    await kit.lease_passes()
    assert {d.payload for d in await kit.take("c2")} == {b"look", b"rescue"}


async def test_any_owner_that_is_gone_counts(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await session.send(decisions=[Decision(E.STEP_CREATED, "s2")], sends=[Send(Kind.STEP, "s2", "default")])
    step = await kit.take_one("c2")
    await kit.claim("c2", step)
    await _lose(kit, session.run_id, "s2")
    await kit.lease_passes(short_of=1)
    await kit.queue().renew(0, [session.held])
    await kit.clock.advance(1)
    assert [d.payload for d in await kit.take("c3")] == [b"rescue"]


async def test_a_retry_lapses_ownership_and_withdraws_it(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    epoch = session.epochs["s1"]
    await session.send(facts=[Fact(E.STEP_RETRYING, "s1", epoch=epoch, due_in=10)])
    assert await kit.waiting(session.run_id) == {"wake": "f"}


async def test_a_session_can_ensure_it(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1", "s2")
    await _lose(kit, session.run_id, "rescue")
    lost = await kit.waits_under(session.run_id, "rescue")
    await session.send(sends=[Send(Kind.RESCUE, "rescue", "default")])
    armed = await kit.waits_under(session.run_id, "rescue")
    assert armed not in ("", lost)
    await session.send(sends=[Send(Kind.RESCUE, "rescue", "default")])
    assert await kit.waits_under(session.run_id, "rescue") == armed
