"""Who may run a step: the claim of a queued one, the start of an inline one, the retries between."""

import pytest

from tests.lua.kit import LEASE, A, E, Session, StoreKit
from world_redis.ids import new_mark
from world_redis.messages import Delivery, Held, Kind
from world_redis.queue import Claim
from world_redis.transition import Decision, Fact, Send


async def _queued(kit: StoreKit) -> tuple[Session, Delivery]:
    """A run with one queued step, its message taken by c2."""
    session = await kit.session()
    await kit.queued_step(session)
    return session, await kit.take_one("c2")


async def _claim(kit: StoreKit, delivery: Delivery, consumer: str = "c2") -> Claim:
    return await kit.claim(consumer, delivery)


async def test_a_claim_stamps_the_step_and_arms_the_rescue(kit: StoreKit) -> None:
    session, delivery = await _queued(kit)
    claim = await _claim(kit, delivery)
    assert (claim.answer, claim.starts, claim.errors, claim.crashes) == (A.OK, 1, 0, 0)
    assert claim.first_started == claim.now == kit.clock.now
    step = await kit.step(session.run_id)
    assert (step.state, step.mode, step.owner, step.epoch) == ("running", "queue", delivery.held, claim.epoch)
    assert (step.owner_live, step.lease_left, step.has_message) == (True, LEASE, True)
    assert await kit.waiting(session.run_id) == {"wake": "f", "s1": "f", "rescue": "d"}


async def test_a_claim_resent_is_the_same_claim_and_another_one_is_lost(kit: StoreKit) -> None:
    _, delivery = await _queued(kit)
    mark = new_mark()
    first = await kit.claim("c2", delivery, mark=mark)
    before = await kit.dump()
    again = await kit.claim("c2", delivery, mark=mark)
    assert (again.answer, again.epoch, again.starts) == (A.OK, first.epoch, 1)
    assert (await _claim(kit, delivery)).answer is A.LOST
    assert await kit.dump() == before


async def test_a_second_message_of_a_running_step_is_owned_and_settled(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    delivery = await kit.take_one("c2")
    await kit.clock.advance(1_000)
    claim = await _claim(kit, delivery)
    assert (claim.answer, claim.retry_in) == (A.OWNED, LEASE - 1_000)
    assert await kit.waiting(session.run_id) == {"wake": "f", "rescue": "d"}


async def test_an_owned_claim_brings_a_lost_rescue_back(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1", "s2")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    delivery = await kit.take_one("c2")
    await _lose(kit, session.run_id, "rescue")
    assert (await _claim(kit, delivery)).answer is A.OWNED
    assert (await kit.waiting(session.run_id))["rescue"] == "d", "it watches both steps: see the check"


async def _lose(kit: StoreKit, run_id: str, key: str) -> None:
    """Somebody deletes a message that waits."""
    world = kit.world
    messages, out = world.keys.partition(0)[1], world.keys.run(0, run_id)[3]
    id = await world.command("HGET", out, key)
    await world.command("HDEL", messages, id, id + b":p")
    await world.command("HDEL", out, key)
    _, delayed, flight, *_ = world.keys.queue(0, "default")
    await world.command("ZREM", delayed, id)
    await world.command("ZREM", flight, id)


async def test_the_claim_of_an_ended_step_wakes_the_run_and_is_settled(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    delivery = await kit.take_one("c2")
    await session.send(facts=[session.done("s1")])
    claim = await _claim(kit, delivery)
    assert claim.answer is A.EXISTS
    assert await kit.waiting(session.run_id) == {"wake*": "f", "wake": "r"}


async def test_the_claim_of_a_withdrawn_step_is_gone_and_settled(kit: StoreKit) -> None:
    session, delivery = await _queued(kit)
    await session.send(withdraws=["s1"])
    assert (await kit.step(session.run_id)).state == "withdrawn"
    assert (await _claim(kit, delivery)).answer is A.GONE
    assert await kit.waiting(session.run_id) == {"wake": "f"}
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    assert "s1" not in await kit.waiting(session.run_id), "a withdrawn step is never sent again"


async def test_the_claim_on_a_finished_run_is_expired_although_the_step_reads_running(kit: StoreKit) -> None:
    session, delivery = await _queued(kit)
    await _claim(kit, delivery)
    await session.send(decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held])
    await kit.lease_passes()
    again = await kit.take_one("c3")
    claim = await _claim(kit, again, "c3")
    assert (claim.answer, claim.run_status) == (A.EXPIRED, "completed")
    assert await kit.waiting(session.run_id) == {}


async def test_the_claim_of_nothing_is_settled(kit: StoreKit) -> None:
    session, delivery = await _queued(kit)
    gone = delivery._replace(key="s9")
    assert (await _claim(kit, gone)).answer is A.NOT_FOUND
    assert (await kit.waiting(session.run_id)) == {"wake": "f"}


async def test_only_the_holder_claims(kit: StoreKit) -> None:
    _, delivery = await _queued(kit)
    assert (await _claim(kit, delivery, "c3")).answer is A.LOST
    await kit.lease_passes()
    again = next(d for d in await kit.take("c3") if d.key == "s1")
    assert (await _claim(kit, delivery)).answer is A.SUPERSEDED
    assert (await _claim(kit, again, "c3")).answer is A.OK


async def test_a_retry_before_its_time_is_moved_there(kit: StoreKit) -> None:
    session, delivery = await _queued(kit)
    claim = await _claim(kit, delivery)
    step = Session(kit, session.run_id, delivery, "c2", seq=1)
    send = Send(Kind.STEP, "s1", "default", b"again")
    retry = Fact(E.STEP_RETRYING, "s1", b"error", epoch=claim.epoch, due_in=5_000, send=send)
    reply = await step.send(facts=[retry], settles=[delivery.held])
    assert (reply.answer, reply.events[-1].extra) == (A.OK, str(kit.clock.now + 5_000))
    assert await kit.waiting(session.run_id) == {"wake": "f", "s1": "d"}, "no step runs: no rescue"
    await kit.clock.advance(3_000)
    assert await kit.take("c2") == []
    assert await kit.queue("c2").take(0, ["default"], runs=1, steps=1, empty=True) == ([], 1000, False)


async def test_a_retry_claimed_too_early_waits_for_its_due_time(kit: StoreKit) -> None:
    session, delivery = await _queued(kit)
    claim = await _claim(kit, delivery)
    step = Session(kit, session.run_id, delivery, "c2", seq=1)
    await step.send(facts=[Fact(E.STEP_RETRYING, "s1", epoch=claim.epoch, due_in=5_000)])
    await step.send(settles=[delivery.held])
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    early = await kit.take_one("c3")
    claim = await _claim(kit, early, "c3")
    assert (claim.answer, claim.retry_in) == (A.TOO_EARLY, 5_000)
    assert (await _claim(kit, early, "c3")).answer is A.SUPERSEDED, "it was moved: a resend finds it moved"
    await kit.clock.advance(5_000)
    late = await kit.take_one("c3")
    assert (late.message_id, late.number, late.attempt) == (early.message_id, 2, 1)
    assert (await _claim(kit, late, "c3")).answer is A.OK


@pytest.mark.parametrize(("cause", "errors", "crashes"), [("error", 1, 0), ("crash", 0, 1), ("drain", 0, 0)])
async def test_only_errors_count_as_errors(kit: StoreKit, cause: str, errors: int, crashes: int) -> None:
    session = await kit.session()
    await session.inline("s1")
    epoch = session.epochs["s1"]
    await session.send(facts=[Fact(E.STEP_RETRYING, "s1", epoch=epoch, cause=cause)])
    step = await kit.step(session.run_id)
    assert (step.state, step.owner, step.starts, step.errors, step.crashes) == (
        "retrying",
        None,
        1,
        errors,
        crashes,
    )


# --- ownership --------------------------------------------------------------------------------------


async def test_a_later_delivery_of_the_owner_recovers_the_step(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    old = session.done("s1")
    await kit.lease_passes()
    again = Session(kit, session.run_id, await kit.take_one("c2"), "c2")
    reply = await again.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")], table=True)
    assert reply.decisions == [A.OK]
    step = await kit.step(session.run_id)
    assert (step.starts, step.crashes, step.owner) == (2, 1, again.held)
    assert reply.starts["s1"][1:] == (0, step.first_started), "what the log counted, not what a table showed"
    assert (await session.send(facts=[old])).facts == [A.SUPERSEDED]
    assert (await again.send(facts=[again.done("s1")])).facts == [A.OK]


async def test_the_end_of_the_old_execution_wins_before_the_new_start(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await kit.lease_passes()
    again = Session(kit, session.run_id, await kit.take_one("c2"), "c2")
    assert (await session.send(facts=[session.done("s1")])).facts == [A.OK]
    reply = await again.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])
    assert (reply.answer, reply.decisions) == (A.CONFLICT, [A.EXISTS])


async def test_a_worker_recovers_a_step_under_whichever_message_of_the_run_it_sends(kit: StoreKit) -> None:
    """Its session holds a wake, the carrier, when the owner's message comes to it as well."""
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    await kit.resume(session.run_id)
    heir = Session(kit, session.run_id, await kit.take_one("c2"), "c2")
    await kit.clock.advance(LEASE // 2)
    await kit.queue("c2").renew(0, [heir.held])
    await kit.take("onlooker", runs=0, steps=0)
    await kit.clock.advance(LEASE // 2)
    (again,) = await kit.take("c2")
    assert again.held == Held(session.held.message_id, 2)

    await kit.resume(session.run_id, "r2")
    other = Session(kit, session.run_id, await kit.take_one("c3"), "c3")
    restart = [Decision(E.STEP_STARTED, "s1", mode="inline")]
    assert (await other.send(decisions=restart)).decisions == [A.OWNED], "it is the heir's"
    assert (await heir.send(decisions=restart)).decisions == [A.OK]
    step = await kit.step(session.run_id)
    assert (step.owner, step.starts, step.crashes) == (heir.held, 2, 1)


async def test_a_restart_is_told_of_the_retry_that_was_recorded_since_it_looked(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await kit.lease_passes()
    again = Session(kit, session.run_id, await kit.take_one("c2"), "c2")
    table = (await again.send(table=True)).table
    assert table is not None and table.steps[0].errors == 0
    late = Fact(E.STEP_RETRYING, "s1", epoch=session.epochs["s1"], cause="error")
    assert (await session.send(facts=[late])).facts == [A.OK]
    reply = await again.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])
    assert reply.starts["s1"].errors == 1, "its attempt is the second"


async def test_a_start_under_a_live_owner_is_owned(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    await kit.resume(session.run_id)
    other = Session(kit, session.run_id, await kit.take_one("c2"), "c2")
    reply = await other.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])
    assert (reply.answer, reply.decisions) == (A.CONFLICT, [A.OWNED])
    await kit.lease_passes()
    reply = await other.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])
    assert reply.decisions == [A.OK], "the owner's lease is over"


async def test_a_deferral_gives_the_step_away(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    await kit.queue().defer(0, [session.held], due_in=10_000)
    await kit.resume(session.run_id)
    other = Session(kit, session.run_id, await kit.take_one("c2"), "c2")
    assert (await other.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])).decisions == [A.OK]


async def test_with_inline_ownership_off_a_claim_restamps_and_the_older_end_is_superseded(
    kit: StoreKit,
) -> None:
    off = await kit.switched(inline_ownership=False)
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    claim = await off.claim("c2", await kit.take_one("c2"))
    assert (claim.answer, claim.starts, claim.crashes) == (A.OK, 2, 0), "the owner lives: no crash"
    assert (await session.send(facts=[session.done("s1")])).facts == [A.SUPERSEDED]
    await off.world.close()


async def test_with_the_queue_backstop_off_only_queued_steps_are_restamped(kit: StoreKit) -> None:
    off = await kit.switched(queue_backstop=False)
    session, delivery = await _queued(kit)
    await _claim(kit, delivery)
    await session.inline("s2")
    other = Session(off, session.run_id, session.delivery, seq=session.seq)
    reply = await other.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])
    assert reply.decisions == [A.OK]
    reply = await other.send(decisions=[Decision(E.STEP_STARTED, "s2", mode="inline")])
    assert reply.decisions == [A.OWNED]
    await off.world.close()


async def test_a_step_that_does_not_run_is_failed_by_who_names_no_epoch(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    wrong = Fact(E.STEP_FAILED, "s1", epoch=(await session.inline("s2")).starts["s2"].epoch)
    assert (await session.send(facts=[wrong])).facts == [A.SUPERSEDED]
    assert (await session.send(facts=[Fact(E.STEP_COMPLETED, "s1")])).facts == [A.SUPERSEDED]
    assert (await session.send(facts=[Fact(E.STEP_FAILED, "s1")])).facts == [A.OK]
    assert "s1" not in await kit.waiting(session.run_id), "its message goes with it"
    assert (await session.send(facts=[Fact(E.STEP_FAILED, "s2")])).facts == [A.SUPERSEDED], "it runs"
