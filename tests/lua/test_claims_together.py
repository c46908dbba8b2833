"""Several queued steps of one run claimed in one call: each is judged by itself."""

from tests.lua.kit import A, E, Session, StoreKit
from tests.partition import read_partition
from world_redis.ids import new_mark
from world_redis.messages import Delivery, Kind
from world_redis.transition import Fact, Send


async def _taken(kit: StoreKit, *ids: str) -> tuple[Session, list[Delivery]]:
    """A run with these steps queued, their messages taken by c2."""
    session = await kit.session()
    for id in ids:
        await kit.queued_step(session, id)
    return session, await kit.take("c2")


async def test_claims_in_one_call_are_executions_of_their_own(kit: StoreKit) -> None:
    session, deliveries = await _taken(kit, "s1", "s2", "s3")
    claims = await kit.queue("c2").claim(deliveries)
    assert [claim.answer for claim in claims] == [A.OK] * 3
    assert len({claim.epoch for claim in claims}) == 3
    for delivery, claim in zip(deliveries, claims, strict=True):
        step = await kit.step(session.run_id, delivery.key)
        assert (step.state, step.owner, step.epoch) == ("running", delivery.held, claim.epoch)
    state = await read_partition(kit.world, 0)
    (rescue,) = [each for each in state.messages.values() if each.kind == Kind.RESCUE]
    assert dict(rescue.owners) == {delivery.message_id: 1 for delivery in deliveries}
    assert (await kit.types(session.run_id))[-3:] == [f"step_started:{each.key}" for each in deliveries]


async def test_what_is_refused_takes_nothing_along(kit: StoreKit) -> None:
    """One ended, one runs under its owner, one was withdrawn, one comes before its time, one is free, one is
    somebody else's."""
    session = await kit.session()
    await session.inline("s1", "s2", "s3")
    for id in ("s4", "s5", "s6"):
        await kit.queued_step(session, id)
    retry = Fact(E.STEP_RETRYING, "s3", epoch=session.epochs["s3"], due_in=5_000)
    await session.send(facts=[retry], sends=[Send(Kind.STEP, id, "default") for id in ("s1", "s2", "s3")])
    taken = {each.key: each for each in await kit.take("c2")}
    await session.send(facts=[session.done("s1")], withdraws=["s4"])
    theirs = taken["s6"]
    await kit.queue("c2").defer(0, [theirs.held])
    await kit.take_one("c3")

    asked = [taken[f"s{n}"] for n in range(1, 7)]
    claims = await kit.queue("c2").claim(asked)
    assert [claim.answer for claim in claims] == [
        *(A.EXISTS, A.OWNED, A.TOO_EARLY, A.GONE, A.OK, A.SUPERSEDED),
    ]
    assert claims[2].retry_in == 5_000
    assert await kit.waiting(session.run_id) == {
        "wake*": "f",
        "wake": "r",
        "rescue": "d",
        "s3": "d",
        "s5": "f",
        "s6": "f",
    }


async def test_a_call_sent_again_answers_every_claim_as_before(kit: StoreKit) -> None:
    session, deliveries = await _taken(kit, "s1", "s2", "s3")
    await session.send(withdraws=["s2"])
    mark = new_mark()
    first = await kit.queue("c2").claim(deliveries, mark=mark)
    before = await kit.dump()
    again = await kit.queue("c2").claim(deliveries, mark=mark)
    assert [claim.answer for claim in first] == [A.OK, A.GONE, A.OK]
    assert [claim._replace(now=0) for claim in again] == [claim._replace(now=0) for claim in first]
    assert [claim.answer for claim in await kit.queue("c2").claim(deliveries)] == [A.LOST, A.GONE, A.LOST]
    assert await kit.dump() == before


async def test_one_delivery_asked_for_twice_in_a_call_is_one_execution(kit: StoreKit) -> None:
    """After a fail-over a worker may hold a delivery twice under one number."""
    _, (delivery,) = await _taken(kit, "s1")
    mark = new_mark()
    for _ in ("first", "resent"):
        claims = await kit.queue("c2").claim([delivery, delivery], mark=mark)
        assert [claim.answer for claim in claims] == [A.OK, A.LOST]


async def test_two_messages_of_one_step_in_a_call_are_one_execution(kit: StoreKit) -> None:
    session, (first,) = await _taken(kit, "s1")
    await kit.world.command("HDEL", kit.world.keys.run(0, session.run_id)[3], "s1")  # its key is lost
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    second = await kit.take_one("c2")
    claims = await kit.queue("c2").claim([first, second])
    assert [claim.answer for claim in claims] == [A.OK, A.OWNED]


async def test_claims_for_a_run_that_is_not_there_are_all_settled(kit: StoreKit) -> None:
    session, deliveries = await _taken(kit, "s1", "s2")
    kit.tolerated.add("index")
    for key in kit.world.keys.run(0, session.run_id):
        await kit.world.command("DEL", key)
    claims = await kit.queue("c2").claim(deliveries)
    assert [(claim.answer, claim.run_status) for claim in claims] == [(A.NOT_FOUND, "absent")] * 2
