"""How a run ends: what goes with it, who is told, what may still be written."""

import pytest

from tests.lua.kit import RETENTION, A, E, Session, StoreKit, child_of
from world_redis.errors import ScriptError
from world_redis.ids import child_run_id
from world_redis.messages import Kind
from world_redis.transition import Decision, Fact, Send


async def _busy(kit: StoreKit) -> Session:
    """A run with one of everything: inline, queued and retrying step, timer, hook."""
    session = await kit.session()
    await session.inline("s1")
    await session.send(
        decisions=[
            Decision(E.STEP_CREATED, "s2"),
            Decision(E.STEP_CREATED, "s3"),
            Decision(E.WAIT_CREATED, "w1", due_in=60_000),
            Decision(E.HOOK_CREATED, "h1", token="token-h1"),
        ],
        sends=[
            Send(Kind.STEP, "s2", "default"),
            Send(Kind.STEP, "s3", "default"),
            Send(Kind.RUN, "timer", "default", due_in=60_000),
        ],
    )
    return session


async def _terminate(kit: StoreKit, session: Session, *, failed: bool = False) -> A:
    return await kit.runs.terminate(session.run_id, b"why", retention_ms=RETENTION, failed=failed)


async def test_the_end_withdraws_everything_that_waits(kit: StoreKit) -> None:
    session = await _busy(kit)
    reply = await session.send(decisions=[Decision(E.RUN_COMPLETED, data=b"result")], settles=[session.held])
    assert (reply.answer, reply.status) == (A.OK, "completed")
    assert await kit.waiting(session.run_id) == {}
    record = await kit.record(session.run_id)
    assert int(record["ended"]) == kit.clock.now


async def test_steps_under_way_may_still_record_their_end(kit: StoreKit) -> None:
    session = await _busy(kit)
    await session.send(decisions=[Decision(E.RUN_FAILED)], settles=[session.held])
    late = Session(kit, session.run_id, None, epochs=session.epochs)
    assert (await late.send(facts=[late.done("s1")])).facts == [A.OK]
    assert (await late.send(facts=[late.done("s1")])).facts == [A.EXISTS]
    epoch = session.epochs["s1"]
    assert (await late.send(facts=[Fact(E.STEP_RETRYING, "s1", epoch=epoch)])).facts == [A.EXPIRED]
    assert (await kit.types(session.run_id))[-2:] == ["run_failed", "step_completed:s1"]


async def test_the_first_end_wins(kit: StoreKit) -> None:
    session = await _busy(kit)
    await session.send(decisions=[Decision(E.RUN_COMPLETED)])
    reply = await session.send(decisions=[Decision(E.RUN_FAILED)], settles=[session.held])
    assert (reply.answer, reply.decisions, reply.status) == (A.EXPIRED, [A.CONFLICT], "completed")
    assert await kit.waiting(session.run_id) == {}, "the message is settled with that answer"
    assert await _terminate(kit, session) is A.CONFLICT


async def test_every_key_of_a_finished_run_has_a_lifetime_and_the_index_forgets_it(kit: StoreKit) -> None:
    session = await _busy(kit)
    await kit.resume(session.run_id)
    assert await _terminate(kit, session) is A.OK
    for key in kit.world.keys.run(0, session.run_id)[:3]:
        assert 0 < await kit.world.command("PTTL", key) <= RETENTION
    assert await kit.breaches() == []
    await session.send(settles=[session.held])
    for key in kit.world.keys.run(0, session.run_id):
        await kit.world.command("DEL", key)
    await kit.clock.advance(RETENTION)
    other = await kit.session()
    await _terminate(kit, other)
    assert await kit.world.command("ZRANGE", kit.world.keys.partition(0)[3], 0, -1) == [other.run_id.encode()]
    await other.send(settles=[other.held])


# --- cancel and terminate -----------------------------------------------------------------------------


async def test_a_cancel_request_is_recorded_once_and_wakes(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.send(settles=[session.held])
    assert await kit.runs.cancel(session.run_id, b"why") is A.OK
    before = await kit.dump()
    assert await kit.runs.cancel(session.run_id, b"why") is A.EXISTS
    assert await kit.dump() == before
    assert await kit.waiting(session.run_id) == {"wake": "r"}
    wake = Session(kit, session.run_id, await kit.take_one("c2"), "c2", position=session.position)
    reply = await wake.send(decisions=[Decision(E.STEP_CREATED, "s1")])
    assert (reply.answer, reply.cancel_requested) == (A.OK, True), "`finally` may run steps"
    assert (await wake.send(decisions=[Decision(E.RUN_CANCELLED)], settles=[wake.held])).status == "cancelled"
    assert await kit.runs.cancel(session.run_id, b"") is A.EXPIRED


async def test_terminate_ends_a_run_at_once(kit: StoreKit) -> None:
    session = await _busy(kit)
    assert await _terminate(kit, session) is A.OK
    assert await _terminate(kit, session) is A.EXISTS
    assert (await session.send(decisions=[Decision(E.STEP_CREATED, "s9")])).answer is A.EXPIRED
    assert await kit.waiting(session.run_id) == {"wake*": "f"}
    await session.send(settles=[session.held])
    assert (await kit.types(session.run_id))[-1] == "run_cancelled"
    other = await kit.session()
    assert await _terminate(kit, other, failed=True) is A.OK
    assert (await kit.types(other.run_id))[-1] == "run_failed"


# --- children ---------------------------------------------------------------------------------------


async def _family(kit: StoreKit, *, detach: bool = False) -> tuple[Session, str]:
    """A parent that waits for its child."""
    parent = await kit.session()
    child = child_run_id(parent.run_id, "s1")
    await parent.send(
        decisions=[Decision(E.STEP_CREATED, "s1", b"child", mode="child", detach=detach)],
        children=[child_of(parent.run_id, "s1", child)],
        settles=[parent.held],
    )
    return parent, child


async def test_a_child_is_born_with_its_parents_transition(kit: StoreKit) -> None:
    parent, child = await _family(kit)
    assert await kit.waiting(parent.run_id) == {}, "it waits for a live child alone"
    assert await kit.breaches() == []
    assert (await kit.take_one()).run_id == child
    assert (await kit.types(child)) == ["run_created"]


@pytest.mark.parametrize("end", [E.RUN_COMPLETED, E.RUN_FAILED, E.RUN_CANCELLED])
async def test_its_end_is_the_end_of_its_step_in_one_script(kit: StoreKit, end: E) -> None:
    parent, child = await _family(kit)
    session = Session(kit, child, await kit.take_one("c2"), "c2")
    await session.send(decisions=[Decision(end, data=b"x")], settles=[session.held], parent=parent.run_id)
    expected = "step_completed:s1" if end is E.RUN_COMPLETED else "step_failed:s1"
    assert (await kit.types(parent.run_id))[-1] == expected
    assert await kit.waiting(parent.run_id) == {"wake": "r"}


async def test_a_run_with_a_parent_does_not_end_behind_its_back(kit: StoreKit) -> None:
    parent, child = await _family(kit)
    session = Session(kit, child, await kit.take_one("c2"), "c2")
    with pytest.raises(ScriptError, match="malformed"):
        await session.send(decisions=[Decision(E.RUN_COMPLETED)])
    assert await kit.runs.terminate(child, b"", retention_ms=RETENTION) is A.OK, "it finds the parent itself"
    assert (await kit.types(parent.run_id))[-1] == "step_failed:s1"
    await session.send(settles=[session.held])


async def test_the_child_of_a_finished_parent_ends_all_the_same(kit: StoreKit) -> None:
    parent, child = await _family(kit, detach=True)
    await kit.runs.terminate(parent.run_id, b"", retention_ms=RETENTION)
    session = Session(kit, child, await kit.take_one("c2"), "c2")
    reply = await session.send(
        decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held], parent=parent.run_id
    )
    assert (reply.answer, reply.status) == (A.OK, "completed")
    assert (await kit.types(parent.run_id))[-1] == "run_cancelled"


async def test_a_parked_parent_is_told_and_not_woken(kit: StoreKit) -> None:
    parent, child = await _family(kit)
    await kit.runs.cancel(parent.run_id, b"")
    got = {d.run_id: d for d in await kit.take() if d.kind != Kind.CANCEL}
    cancels = [d for d in await kit.take() if d.kind == Kind.CANCEL]
    assert cancels == []
    await kit.queue().refuse(
        parent.run_id, [got[parent.run_id].held], reason="X", detail="", build="b", park_after=0, back_in=0
    )
    session = Session(kit, child, got[child])
    await session.send(decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held], parent=parent.run_id)
    assert (await kit.types(parent.run_id))[-1] == "step_completed:s1"
    assert await kit.waiting(parent.run_id) == {}


@pytest.mark.parametrize("ends", [False, True], ids=["cancel request", "end"])
@pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])
async def test_a_cancel_or_end_is_passed_on_to_open_children(kit: StoreKit, ends: bool, detach: bool) -> None:
    parent, child = await _family(kit, detach=detach)
    if ends:
        await kit.runs.terminate(parent.run_id, b"", retention_ms=RETENTION)
    else:
        await kit.runs.cancel(parent.run_id, b"")
    got = [d for d in await kit.take() if d.kind == Kind.CANCEL]
    assert [d.run_id for d in got] == ([] if detach else [child])
    for delivery in got:
        assert await kit.runs.cancel(delivery.run_id, b"") is A.OK
        await Session(kit, child, delivery).send(settles=[delivery.held])
    assert "cancel" not in await kit.waiting(child)


async def test_a_child_that_has_come_and_gone_is_not_started_again(kit: StoreKit) -> None:
    parent, child = await _family(kit)
    session = Session(kit, child, await kit.take_one("c2"), "c2")
    await session.send(decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held], parent=parent.run_id)
    for key in kit.world.keys.run(0, child):
        await kit.world.command("DEL", key)
    await kit.world.command("ZREM", kit.world.keys.partition(0)[3], child)
    again = Session(kit, parent.run_id, await kit.take_one("c2"), "c2")
    reply = await again.send(
        decisions=[Decision(E.STEP_CREATED, "s1", b"child", mode="child")],
        children=[child_of(parent.run_id, "s1", child)],
    )
    assert reply.decisions == [A.EXISTS]
    assert await kit.log().read(child) is None


async def test_the_parent_of_a_continued_run_waits_for_the_new_one(kit: StoreKit) -> None:
    parent, child = await _family(kit)
    heir = child_run_id(child, "s1")
    session = Session(kit, child, await kit.take_one("c2"), "c2")
    start = child_of(parent.run_id, "s1", heir)._replace(step="")
    await session.send(
        decisions=[Decision(E.RUN_COMPLETED, data=b"continued")],
        children=[start],
        settles=[session.held],
        parent=parent.run_id,
    )
    assert await kit.waiting(parent.run_id) == {}
    assert await kit.breaches() == []
    session = Session(kit, heir, await kit.take_one("c2"), "c2")
    await session.send(decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held], parent=parent.run_id)
    assert (await kit.types(parent.run_id))[-1] == "step_completed:s1"


async def test_the_end_of_a_step_of_kind_child_comes_from_the_child_alone(kit: StoreKit) -> None:
    parent, child = await _family(kit)
    reply = await Session(kit, parent.run_id, None).send(facts=[Fact(E.STEP_COMPLETED, "s1")])
    assert reply.facts == [A.SUPERSEDED]
    await kit.lease_passes()
    assert (await kit.take_one()).run_id == child


async def test_a_holder_that_ended_the_run_without_settling_learns_of_the_end(kit: StoreKit) -> None:
    session = await kit.session()
    await session.send(decisions=[Decision(E.RUN_COMPLETED)])
    assert await kit.queue().renew(0, [session.held]) == ["over"]
    await session.send(settles=[session.held])
