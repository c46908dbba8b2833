"""Runs nobody can take on, messages nobody can use, and the sweeper behind everything."""

import pytest

from tests.lua.kit import LEASE, A, E, Session, StoreKit
from tests.lua.test_claims import _lose
from tests.partition import read_partition
from world_redis.ids import new_run_id
from world_redis.messages import Delivery, Kind
from world_redis.runs import parked_runs
from world_redis.sweep import sweep
from world_redis.transition import Decision, Send

PARK_AFTER = 600_000


async def _refuse(
    kit: StoreKit, run_id: str, delivery: Delivery, *, build: str = "b1", park_after: int = PARK_AFTER
) -> str:
    return await kit.queue().refuse(
        run_id,
        [delivery.held],
        reason="UNKNOWN",
        detail="why",
        build=build,
        park_after=park_after,
        back_in=2_000,
    )


async def test_a_run_is_given_back_until_its_time_is_over_then_it_parks(kit: StoreKit) -> None:
    run_id = await kit.start()
    for build in ("b1", "b2", "b1"):
        delivery = await kit.take_one()
        assert delivery.attempt == 1
        assert await _refuse(kit, run_id, delivery, build=build) == "deferred"
        assert await _refuse(kit, run_id, delivery, build=build) == "superseded", "a resend changes nothing"
        assert await kit.waiting(run_id) == {"wake": "d"}
        await kit.clock.advance(2_000)
    await kit.clock.advance(PARK_AFTER)
    assert await _refuse(kit, run_id, await kit.take_one()) == "parked"
    assert await kit.waiting(run_id) == {}
    since = kit.clock.now
    assert await parked_runs(kit.world, 0) == {run_id: ("UNKNOWN", since, "b1 b2")}


async def test_a_committed_pass_clears_the_time(kit: StoreKit) -> None:
    run_id = await kit.start()
    await _refuse(kit, run_id, await kit.take_one())
    await kit.clock.advance(2_000)
    session = Session(kit, run_id, await kit.take_one())
    await session.send(decisions=[Decision(E.RUN_STARTED)])
    assert "refused_since" not in await kit.record(run_id)
    await kit.clock.advance(PARK_AFTER - LEASE)
    await kit.lease_passes()
    assert await _refuse(kit, run_id, await kit.take_one()) == "deferred"


async def test_a_parked_run_accepts_facts_and_sends_no_wakes(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    await session.send(sends=[Send(Kind.RUN, "timer", "default", due_in=1_000)])
    await kit.resume(session.run_id)
    wake = await kit.take_one("c1")
    assert await _refuse(kit, session.run_id, wake, park_after=0) == "parked"
    reply = await session.send(
        facts=[session.done("s1")], sends=[Send(Kind.RUN, "timer", "default")], settles=[session.held]
    )
    assert (reply.facts, reply.parked, reply.unsettled) == ([A.OK], "UNKNOWN", False)
    assert await kit.runs.cancel(session.run_id, b"") is A.OK
    assert await kit.waiting(session.run_id) == {}


async def test_the_first_build_that_has_not_refused_it_tries_again(kit: StoreKit) -> None:
    run_id = await kit.start()
    await _refuse(kit, run_id, await kit.take_one(), park_after=0)
    assert await kit.runs.unpark(run_id, build="b1") is A.EXISTS
    assert await kit.runs.unpark(run_id, build="b2") is A.OK
    assert await kit.runs.unpark(run_id, build="b2") is A.EXISTS, "a resend"
    assert await kit.waiting(run_id) == {"wake": "r"}
    assert await _refuse(kit, run_id, await kit.take_one(), build="b2", park_after=0) == "parked"
    assert await kit.runs.unpark(run_id, build="b2") is A.EXISTS
    assert await kit.runs.unpark(run_id) is A.OK, "an operator decides for himself"
    assert await kit.runs.unpark(new_run_id(0)) is A.NOT_FOUND


async def test_a_step_nobody_knows_parks_its_run_and_waits(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    await session.send(settles=[session.held])
    step = await kit.take_one()
    assert await _refuse(kit, session.run_id, step, park_after=0) == "parked"
    assert await kit.waiting(session.run_id) == {"s1": "d"}
    await kit.clock.advance(2_000)
    again = await kit.take_one()
    assert (again.message_id, again.attempt) == (step.message_id, 1)
    assert (await kit.claim("c1", again)).answer is A.OK, "steps of a parked run run on"


async def test_a_finished_run_cannot_be_refused(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.runs.terminate(session.run_id, b"", retention_ms=1_000)
    assert session.delivery is not None
    assert await _refuse(kit, session.run_id, session.delivery) == "expired"
    assert await kit.runs.unpark(session.run_id) is A.EXPIRED
    assert await kit.waiting(session.run_id) == {}


# --- dead letters -------------------------------------------------------------------------------------


async def _bury(kit: StoreKit, delivery: Delivery, consumer: str = "c1") -> str:
    return await kit.queue(consumer).bury(delivery, reason="UNDECODABLE", detail="x", step_failed=b"failure")


async def _dead(kit: StoreKit) -> list[tuple[bytes, bytes, bytes]]:
    entries = await kit.world.command("XRANGE", kit.world.keys.partition(0)[5], "-", "+")
    letters = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]
    return [(letter[b"kind"], letter[b"key"], letter[b"payload"]) for letter in letters]


async def test_a_run_message_nobody_can_use_parks_its_run(kit: StoreKit) -> None:
    run_id = await kit.start()
    delivery = await kit.take_one()
    assert await _bury(kit, delivery) == "ok"
    assert await _bury(kit, delivery) == "gone", "a resend changes nothing"
    assert (await kit.record(run_id))["parked"] == b"UNDECODABLE"
    assert await _dead(kit) == [(b"run", b"wake", delivery.payload)]


async def test_a_step_message_nobody_can_use_fails_its_step(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    await session.send(settles=[session.held])
    assert await _bury(kit, await kit.take_one()) == "ok"
    assert (await kit.types(session.run_id))[-1] == "step_failed:s1"
    assert await kit.waiting(session.run_id) == {"wake": "r"}


async def test_a_step_that_crashed_too_often_fails_although_it_reads_running(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    await session.send(settles=[session.held])
    await kit.claim("c2", await kit.take_one("c2"))
    await kit.lease_passes()
    assert await _bury(kit, await kit.take_one()) == "ok"
    assert (await kit.types(session.run_id))[-1] == "step_failed:s1"
    assert await kit.waiting(session.run_id) == {"wake": "r"}


async def test_a_buried_copy_does_not_fail_a_step_that_runs_elsewhere(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    assert await _bury(kit, await kit.take_one("c2"), "c2") == "owned"
    assert await kit.waiting(session.run_id) == {"wake": "f", "rescue": "d"}
    assert await _dead(kit) == []


async def test_burying_what_another_worker_holds_is_refused_in_words(kit: StoreKit) -> None:
    """`lost` is an answer to the caller here, no trouble with the connection."""
    await kit.start()
    delivery = await kit.take_one()
    connects = kit.world.connects
    assert await _bury(kit, delivery, "c2") == "lost"
    assert await _bury(kit, delivery._replace(number=0)) == "superseded"
    assert kit.world.connects == connects


async def test_a_message_of_nothing_is_buried_too(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.runs.terminate(session.run_id, b"", retention_ms=1_000)
    assert session.delivery is not None
    assert await _bury(kit, session.delivery) == "ok"
    assert await kit.waiting(session.run_id) == {}


# --- the sweeper ----------------------------------------------------------------------------------------


async def test_a_run_without_a_way_forward_is_woken_at_the_second_sighting(kit: StoreKit) -> None:
    session = await kit.session()
    await _lose(kit, session.run_id, "wake")
    found = await sweep(kit.world, 0, {})
    assert (list(found.sightings), found.healed) == ([session.run_id], [])
    found = await sweep(kit.world, 0, found.sightings)
    assert found.healed == [session.run_id]
    assert await kit.waiting(session.run_id) == {"wake": "r"}
    assert (await sweep(kit.world, 0, found.sightings)).sightings == {}


async def test_a_run_that_moved_between_two_sweeps_is_left_alone(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await _lose(kit, session.run_id, "wake")
    found = await sweep(kit.world, 0, {})
    await kit.resume(session.run_id)
    assert await kit.runs.heal(session.run_id, found.sightings[session.run_id]) is A.EXISTS
    found = await sweep(kit.world, 0, found.sightings)
    assert found == ({}, [])


@pytest.mark.parametrize("kind", ["hook", "parked", "delayed start", "put off", "timer"])
async def test_a_healthy_run_is_not_swept(kit: StoreKit, kind: str) -> None:
    if kind == "delayed start":
        await kit.start(due_in=3_600_000)
    else:
        session = await kit.session()
        if kind == "put off":
            await kit.queue().defer(0, [session.held], due_in=60_000)
        elif kind == "parked":
            assert session.delivery is not None
            await _refuse(kit, session.run_id, session.delivery, park_after=0)
        elif kind == "timer":
            await session.send(
                decisions=[Decision(E.WAIT_CREATED, "w1", due_in=9_000)],
                sends=[Send(Kind.RUN, "timer", "default", due_in=9_000)],
                settles=[session.held],
            )
        else:
            await kit.hooked(session)
            await session.send(settles=[session.held])
    assert (await sweep(kit.world, 0, {})).sightings == {}


async def test_a_timer_is_no_answer_to_an_event_nobody_has_seen(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.send(
        decisions=[Decision(E.WAIT_CREATED, "w1", due_in=9_000)],
        sends=[Send(Kind.RUN, "timer", "default", due_in=9_000)],
        settles=[session.held],
    )
    await kit.resume(session.run_id)
    world = kit.world
    messages, out = world.keys.partition(0)[1], world.keys.run(0, session.run_id)[3]
    id = await world.command("HGET", out, "wake")
    await world.command("HDEL", messages, id)
    await world.command("HDEL", out, "wake")
    await world.command("DEL", world.keys.queue(0, "default")[0])
    found = await sweep(world, 0, {})
    assert list(found.sightings) == [session.run_id]
    assert (await sweep(world, 0, found.sightings)).healed == [session.run_id]


async def test_a_partition_reads_back_as_it_is(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    state = await read_partition(kit.world, 0, logs=True)
    found = state.runs[session.run_id]
    assert (found.run.workflow, found.run.status, found.run.head) == ("order", "running", 5)
    assert found.run.position == session.position and found.run.settled is None
    assert found.steps["s1"].epoch == session.epochs["s1"]
    assert (found.hooks, found.counters["s"], found.counters["h"]) == ({"h1": "token-h1"}, 1, 1)
    assert found.log is not None and len(found.log) == 5
