"""A new wake tells the event that caused it, once and if it is short."""

import msgpack
import pytest

from tests.lua.kit import A, E, Session, StoreKit, child_of
from world_redis.events import Event
from world_redis.hooks import HookAddress
from world_redis.ids import new_run_id
from world_redis.messages import News
from world_redis.scripts import script_call
from world_redis.transition import Decision, Fact

MOST = 4096  # bytes of an event's data that a wake tells


async def _rests(kit: StoreKit) -> Session:
    """A run that waits for a hook, with nothing on its way."""
    session = await kit.session()
    await kit.hooked(session)
    await session.send(settles=[session.held])
    return session


async def _told(kit: StoreKit, run_id: str) -> Event:
    """The event that the run's wake tells, which is the last one of its log, at its position."""
    (wake,) = await kit.take("c2")
    log = await kit.log().read(run_id)
    assert log is not None and wake.news is not None
    assert wake.news == News(log.events[-1], log.position)
    assert wake.payload == b""
    return wake.news.event


async def test_a_payloads_wake_tells_it(kit: StoreKit) -> None:
    run_id = (await _rests(kit)).run_id
    await kit.resume(run_id)
    event = await _told(kit, run_id)
    assert (event.type, event.id, event.data) == (E.HOOK_RECEIVED, "h1", b"payload")


async def test_a_cancel_requests_wake_tells_it(kit: StoreKit) -> None:
    run_id = (await _rests(kit)).run_id
    await kit.runs.cancel(run_id, b"why")
    event = await _told(kit, run_id)
    assert (event.type, event.data) == (E.RUN_CANCEL_REQUESTED, b"why")


async def test_the_wake_of_a_queued_steps_end_tells_it(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    await session.send(settles=[session.held])
    step = await kit.take_one("c3")
    (claim,) = await kit.queue("c3").claim([step])
    done = Fact(E.STEP_COMPLETED, "s1", b"out", epoch=claim.epoch)
    await Session(kit, session.run_id, step, "c3", seq=1).send(facts=[done], settles=[step.held])
    event = await _told(kit, session.run_id)
    assert (event.type, event.id, event.data) == (E.STEP_COMPLETED, "s1", b"out")


async def test_the_wake_of_a_childs_end_tells_it(kit: StoreKit) -> None:
    session, child_id = await kit.session(), new_run_id(0)
    creates = [Decision(E.STEP_CREATED, "s1", mode="child")]
    await session.send(decisions=creates, children=[child_of(session.run_id, "s1", child_id)])
    await session.send(settles=[session.held])
    child = Session(kit, child_id, await kit.take_one("c3"), "c3", seen=1)
    ends = [Decision(E.RUN_STARTED), Decision(E.RUN_COMPLETED, data=b"all")]
    await child.send(decisions=ends, settles=[child.held], parent=session.run_id)
    event = await _told(kit, session.run_id)
    assert (event.type, event.id, event.data) == (E.STEP_COMPLETED, "s1", b"told")


@pytest.mark.parametrize(("size", "told"), [(MOST, True), (MOST + 1, False)])
async def test_a_long_event_is_left_to_the_log(kit: StoreKit, size: int, told: bool) -> None:
    run_id = (await _rests(kit)).run_id
    await kit.hooks.resume(HookAddress(run_id, "h1"), "token-h1", "r1", b"x" * size)
    wake = await kit.take_one("c2")
    assert (wake.news is not None) == told


async def test_a_wake_that_waits_keeps_what_it_tells(kit: StoreKit) -> None:
    run_id = (await _rests(kit)).run_id
    _, first = await kit.resume(run_id, "r1")
    await kit.resume(run_id, "r2")
    wake = await kit.take_one("c2")
    assert wake.news is not None and wake.news.event.slot == first


async def test_beside_a_wake_in_flight_another_one_tells_the_next_event(kit: StoreKit) -> None:
    run_id = (await _rests(kit)).run_id
    await kit.resume(run_id, "r1")
    first = await kit.take_one("c2")
    await kit.resume(run_id, "r2")
    second = await kit.take_one("c2")
    assert first.news is not None and second.news is not None
    assert second.news.position.decided == first.news.position.decided + 1


async def test_it_tells_at_its_first_hand_out_only(kit: StoreKit) -> None:
    run_id = (await _rests(kit)).run_id
    await kit.resume(run_id)
    assert (await kit.take_one("c2")).news is not None
    await kit.lease_passes()
    again = await kit.take_one("c3")
    assert (again.number, again.news) == (2, None)
    await kit.queue("c3").defer(0, [again.held])
    returned = await kit.take_one("c2")
    assert (returned.number, returned.attempt, returned.news) == (3, 1, None)


async def test_a_take_whose_answer_was_lost_hands_it_out_without_what_it_tells(kit: StoreKit) -> None:
    run_id = (await _rests(kit)).run_id
    await kit.resume(run_id)
    call = script_call("take", 0, ["c2", 9, 9, ["default"], 1], queues=["default"])
    (first,) = (await kit.world(call))[1]
    (again,) = (await kit.world._run(call, True))[1]
    assert first[-1] and again == [*first[:-1], b""]


async def test_first_messages_and_wakes_that_are_to_look_tell_nothing(kit: StoreKit) -> None:
    session = await _rests(kit)
    await kit.start()
    assert (await kit.take_one("c2")).news is None
    snapshot = await kit.log().read(session.run_id)
    assert snapshot is not None
    assert await kit.runs.heal(session.run_id, snapshot.head) is A.OK
    look = await kit.take_one("c2")
    assert (look.payload, look.news) == (b"look", None)


async def test_it_is_kept_in_the_header_where_older_workers_do_not_look(kit: StoreKit) -> None:
    """They read fifteen fields, overwrite this one when they hand the wake out, and see no payload."""
    run_id = (await _rests(kit)).run_id
    await kit.resume(run_id)
    held = (await kit.dump())[kit.world.keys.partition(0)[1]]
    (header,) = held.values()
    assert len(msgpack.unpackb(header, raw=True)) == 15
    await kit.take("c2")
    (header,) = (await kit.dump())[kit.world.keys.partition(0)[1]].values()
    assert b"payload" not in header
