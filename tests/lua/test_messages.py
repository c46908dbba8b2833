"""Taking, keeping, returning: one place for every message, one holder for every delivery."""

import pytest

from tests.lua.kit import LEASE, START_OF_TIME, A, E, Session, StoreKit
from world_redis.ids import new_run_id
from world_redis.messages import Held, Kind
from world_redis.queue import Queue
from world_redis.scripts import ScriptCall, script_call
from world_redis.transition import Decision, Fact, Send


async def _fan_out(kit: StoreKit, count: int) -> Session:
    session = await kit.session()
    ids = [f"s{number}" for number in range(1, count + 1)]
    await session.send(
        decisions=[Decision(E.STEP_CREATED, id) for id in ids],
        sends=[Send(Kind.STEP, id, "default") for id in ids],
    )
    return session


async def _rings(kit: StoreKit, queue: str = "default") -> int:
    """How many rings wait, and take them."""
    bell, rings = kit.world.keys.bell(0, queue), 0
    while await kit.world.command("LPOP", bell):
        rings += 1
    return rings


# --- taking -----------------------------------------------------------------------------------------


async def test_a_worker_takes_no_more_of_a_kind_than_it_can_run(kit: StoreKit) -> None:
    await _fan_out(kit, 3)
    first = await kit.start()
    await kit.start()
    got = await kit.take("c2", runs=1, steps=2)
    assert [(d.kind, d.key) for d in got] == [(Kind.RUN, "wake"), (Kind.STEP, "s1"), (Kind.STEP, "s2")]
    assert got[0].run_id == first
    assert await kit.take("c2", runs=0, steps=0) == []


async def test_a_run_does_not_wait_behind_steps_that_do_not_fit(kit: StoreKit) -> None:
    await _fan_out(kit, 190)
    run_id = await kit.start()
    got = await kit.take("c2", runs=1, steps=0)
    assert [d.run_id for d in got] == [run_id]


async def test_queues_are_served_in_the_order_named(kit: StoreKit) -> None:
    late, early = await kit.start(queue="slow"), await kit.start(queue="fast")
    queue = Queue(kit.world, "c1")
    taken = await queue.take(0, ["fast", "slow"], runs=1, steps=0, empty=True)
    assert [d.run_id for d in taken.deliveries] == [early]
    taken = await queue.take(0, ["fast", "slow"], runs=1, steps=0, empty=True)
    assert [d.run_id for d in taken.deliveries] == [late]


async def test_a_lapsed_delivery_is_handed_out_again_with_the_next_number(kit: StoreKit) -> None:
    await kit.start()
    first = await kit.take_one("c1")
    await kit.lease_passes(short_of=1)
    assert await kit.take("c2") == []
    await kit.clock.advance(1)
    again = await kit.take_one("c2")
    assert (again.message_id, again.number, again.attempt) == (first.message_id, 2, 2)
    assert again.payload == first.payload
    assert await kit.queue("c1").renew(0, [first.held]) == ["superseded"]


async def test_the_time_until_something_falls_due_is_told(kit: StoreKit) -> None:
    await kit.start(due_in=400)
    queue = kit.queue()
    assert (await queue.take(0, ["default"], runs=9, steps=9, empty=True)).due_in == 400
    await kit.clock.advance(400)
    assert len(await kit.take()) == 1
    await kit.lease_passes(short_of=300)
    assert (await queue.take(0, ["default"], runs=9, steps=9, empty=True)).due_in == 300
    await kit.clock.advance(300)
    assert (await queue.take(0, ["default"], runs=0, steps=9, empty=True)).due_in == 1000, (
        "what lapsed and was not admitted is no reason to come back at once"
    )


async def test_delays_outlive_any_lease(kit: StoreKit) -> None:
    month = 30 * 86_400_000
    session = await kit.session()
    await session.send(
        decisions=[Decision(E.WAIT_CREATED, "w1", due_in=month)],
        sends=[Send(Kind.RUN, "timer", "default", due_in=month)],
        settles=[session.held],
    )
    await kit.clock.advance(month - 1)
    assert await kit.take() == []
    await kit.clock.advance(1)
    assert [d.key for d in await kit.take()] == ["timer"]


async def test_a_start_can_wait(kit: StoreKit) -> None:
    await kit.start(due_in=5_000)
    await kit.start(due_at=START_OF_TIME + 6_000)
    await kit.clock.advance(5_000)
    assert len(await kit.take()) == 1
    await kit.clock.advance(1_000)
    assert len(await kit.take()) == 1


async def test_a_message_withdrawn_while_it_waits_is_not_handed_out(kit: StoreKit) -> None:
    session = await _fan_out(kit, 2)
    await session.send(withdraws=["s1", "timer"])
    assert [d.key for d in await kit.take("c2")] == ["s2"]


async def test_a_call_resent_hands_out_what_the_first_sending_did(kit: StoreKit) -> None:
    """The answer to a take was lost with its connection."""
    await _fan_out(kit, 3)
    args = ["c2", 9, 2, ["default"], 1]
    call = script_call("take", 0, args, queues=["default"])
    first = await kit.world(call)
    before = await kit.dump()
    again = await _resend(kit, call)
    assert again[1] == first[1]
    assert await kit.dump() == before
    assert [row[4] for row in (await kit.world(call._replace(mark=b"another!")))[1]] == [b"s3"]


async def _resend(kit: StoreKit, call: ScriptCall) -> list:
    return await kit.world._run(call, True)


async def test_messages_minted_by_a_resent_take_do_not_collide(kit: StoreKit) -> None:
    sessions = [await kit.session() for _ in range(2)]
    for session in sessions:
        await session.inline("s1")
        await kit.clock.advance(1_000)
        await session.send(sends=[Send(Kind.RUN, "timer", "default", due_in=10 * LEASE)])
        await kit.queue().defer(0, [session.held], due_in=10 * LEASE)
    await kit.clock.set(START_OF_TIME + LEASE)
    call = script_call("take", 0, ["c2", 0, 0, ["default"], 1], queues=["default"])
    await kit.world(call)
    await kit.clock.advance(1_000)
    await _resend(kit, call)
    assert len(await kit.take("c2")) == 2, "each run has its wake"


# --- attempts and poison ----------------------------------------------------------------------------


async def test_attempts_count_crashes_alone_and_the_number_never_goes_back(kit: StoreKit) -> None:
    await kit.start()
    for number in range(1, 4):
        delivery = await kit.take_one()
        assert (delivery.number, delivery.attempt) == (number, number)
        await kit.lease_passes()
    delivery = await kit.take_one()
    assert await kit.queue().defer(0, [delivery.held]) == ["ok"]
    delivery = await kit.take_one()
    assert (delivery.number, delivery.attempt) == (5, 1)


async def test_a_poison_suspect_waits_for_an_empty_worker_and_goes_alone(kit: StoreKit) -> None:
    suspect = await kit.start()
    for _ in range(2):
        await kit.take_one()
        await kit.lease_passes()
    await kit.start()
    taken = await kit.queue("busy").take(0, ["default"], runs=9, steps=9, empty=False)
    assert (len(taken.deliveries), taken.crowded) == (1, True)
    assert taken.deliveries[0].run_id != suspect
    taken = await kit.queue("busy").take(0, ["default"], runs=0, steps=0, empty=False)
    assert taken.crowded, "a worker that makes room asks for nothing and must not forget why"
    await kit.start()
    taken = await kit.queue("empty").take(0, ["default"], runs=9, steps=9, empty=True)
    assert [(d.run_id, d.attempt) for d in taken.deliveries] == [(suspect, 3)]
    assert not taken.crowded


# --- keeping ----------------------------------------------------------------------------------------


async def test_renewal_moves_the_deadline_of_the_holder_only(kit: StoreKit) -> None:
    session = await kit.session()
    for _ in range(3):
        await kit.lease_passes(short_of=1)
        assert await kit.queue().renew(0, [session.held]) == ["ok"]
    assert await kit.take("c2") == []
    words = await kit.queue("c2").renew(0, [session.held, Held("nothing", 1)])
    assert words == ["lost", "gone"]
    await kit.queue().defer(0, [session.held], due_in=50)
    assert await kit.queue().renew(0, [session.held]) == ["superseded"]


async def test_a_lapsed_delivery_nobody_took_can_still_be_renewed(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.clock.advance(LEASE * 2)
    assert await kit.queue().renew(0, [session.held]) == ["ok"]
    assert await kit.take("c2") == []


async def test_a_clock_that_jumps_robs_nobody_who_still_renews(kit: StoreKit) -> None:
    """Also when the server hung for so long, or somebody moved the deadline."""
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    copy = await kit.take_one("c2")
    await kit.clock.advance(1000 * LEASE)
    assert (await kit.claim("c2", copy)).answer is A.OWNED, "before anybody has doubted it"
    assert [d.kind for d in await kit.take("c3")] == [], "its holder has half a lease to object"
    await kit.clock.advance(LEASE // 2 - 1)
    assert await kit.take("c3") == []
    step = await kit.step(session.run_id)
    assert (step.owner_live, step.lease_left) == (True, 1)
    assert await kit.queue().renew(0, [session.held]) == ["ok"]
    step = await kit.step(session.run_id)
    assert (step.owner_live, step.lease_left) == (True, LEASE)
    await kit.lease_passes(short_of=1)
    assert await kit.take("c3") == [], "a doubt that was answered is forgotten"


async def test_whoever_is_silent_after_the_clock_has_jumped_has_half_a_lease(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.clock.advance(1000 * LEASE)
    assert await kit.take("c2") == []
    await kit.clock.advance(LEASE // 2)
    again = await kit.take_one("c2")
    assert again.held == Held(session.held.message_id, 2)
    await kit.clock.advance(LEASE // 2)
    assert await kit.take("c3") == [], "the doubt was about the earlier holder"


async def test_renewals_tell_of_a_cancel_and_of_the_runs_end(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    step = await kit.take_one("c2")
    await kit.claim("c2", step)
    await kit.runs.cancel(session.run_id, b"")
    assert await kit.queue().renew(0, [session.held]) == ["cancel"]
    assert await kit.queue("c2").renew(0, [step.held]) == ["cancel"]
    await kit.runs.terminate(session.run_id, b"", retention_ms=1000)
    assert await kit.queue("c2").renew(0, [step.held]) == ["over"], "an end says more than a cancel"
    again = await kit.session()
    await kit.runs.terminate(again.run_id, b"", retention_ms=1000)
    assert await kit.queue().renew(0, [again.held]) == ["over"]
    await kit.lease_passes()
    assert again.held.message_id in {d.message_id for d in await kit.take("c3")}, "it is renewed no longer"


# --- returning --------------------------------------------------------------------------------------


async def test_a_returned_message_is_the_same_message(kit: StoreKit) -> None:
    await kit.start()
    first = await kit.take_one()
    assert await kit.queue().defer(0, [first.held], due_in=700) == ["ok"]
    assert await kit.queue().defer(0, [first.held], due_in=700) == ["superseded"], "a resend changes nothing"
    await kit.clock.advance(700)
    again = await kit.take_one()
    assert (again.message_id, again.key, again.number, again.payload) == (
        first.message_id,
        first.key,
        2,
        first.payload,
    )


async def test_a_rerouted_message_moves_whole(kit: StoreKit) -> None:
    await kit.start()
    first = await kit.take_one()
    assert await kit.queue().defer(0, [first.held], queue="default@blue") == ["ok"]
    assert await kit.take() == []
    again = await kit.take_one(queue="default@blue")
    assert (again.message_id, again.number, again.queue) == (first.message_id, 2, "default@blue")


async def test_a_returned_wake_never_merges_with_a_waiting_one(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await kit.resume(session.run_id)
    await kit.queue().defer(0, [session.held])
    assert await kit.waiting(session.run_id) == {"wake": "r", "wake*": "r"}
    got = await kit.take("c2")
    other = Session(kit, session.run_id, got[0], "c2", seen=4, position=session.position)
    await other.send(decisions=[Decision(E.RUN_FAILED)])
    other.learn(await kit.log("c2").append(other.last, queue="default"))  # type: ignore[arg-type]
    await other.send(decisions=[Decision(E.RUN_FAILED)], settles=[d.held for d in got])
    assert await kit.waiting(session.run_id) == {}


# --- keys -------------------------------------------------------------------------------------------


async def test_one_wake_waits_however_many_events_come(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.send(settles=[session.held])
    for number in range(5):
        await kit.resume(session.run_id, f"r{number}")
    assert await kit.waiting(session.run_id) == {"wake": "r"}


async def test_wakes_timers_and_the_rescue_have_keys_of_their_own(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    await session.send(sends=[Send(Kind.RUN, "timer", "default", due_in=3_600_000)])
    await kit.resume(session.run_id)
    assert await kit.waiting(session.run_id) == {"wake": "r", "wake*": "f", "timer": "d", "rescue": "d"}
    await session.send(withdraws=["timer"])
    assert await kit.waiting(session.run_id) == {"wake": "r", "wake*": "f", "rescue": "d"}


async def test_a_waiting_message_moves_to_the_earlier_due_time_never_to_a_later_one(kit: StoreKit) -> None:
    session, delayed = await kit.session(), kit.world.keys.queue(0, "default").delayed
    for due_in, expected in ((9_000, 9_000), (4_000, 4_000), (6_000, 4_000)):
        await session.send(sends=[Send(Kind.RUN, "timer", "default", due_in=due_in)])
        timer = await kit.waits_under(session.run_id, "timer")
        assert float(await kit.world.command("ZSCORE", delayed, timer)) == kit.clock.now + expected


async def test_a_steps_key_is_taken_until_its_message_is_settled(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    again = Send(Kind.STEP, "s1", "default")
    await session.send(sends=[again])
    delivery = await kit.take_one("c2")
    await session.send(sends=[again])
    assert await kit.waiting(session.run_id) == {"wake": "f", "s1": "f"}
    await kit.queue("c2").defer(0, [delivery.held], due_in=5_000)
    await session.send(sends=[again])
    assert (await kit.take_one("c2")).message_id == delivery.message_id, "moved to now"


async def test_a_retry_is_not_merged_with_the_message_that_asks_for_it(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    delivery = await kit.take_one("c2")
    claim = await kit.claim("c2", delivery)
    step = Session(kit, session.run_id, delivery, "c2", seq=1)
    send = Send(Kind.STEP, "s1", "default", b"again")
    await step.send(
        facts=[Fact(E.STEP_RETRYING, "s1", epoch=claim.epoch, due_in=1_000, send=send)],
        settles=[delivery.held],
    )
    await kit.clock.advance(1_000)
    again = await kit.take_one("c2")
    assert again.message_id != delivery.message_id and again.payload == b"again"


async def test_an_owners_retry_is_not_swallowed_by_a_copy_that_was_put_off(kit: StoreKit) -> None:
    """A copy of the step's message met `owned`; the owner's body then fails and retries in a second."""
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    copy = await kit.take_one("c2")
    assert (await kit.claim("c2", copy)).answer is A.OWNED
    epoch = session.epochs["s1"]
    send = Send(Kind.STEP, "s1", "default", b"again")
    await session.send(facts=[Fact(E.STEP_RETRYING, "s1", epoch=epoch, due_in=1_000, send=send)])
    await kit.clock.advance(1_000)
    assert [d.payload for d in await kit.take("c2")] == [b"again"]


# --- the wake rule ----------------------------------------------------------------------------------


async def test_the_holder_of_an_unsettled_run_message_needs_no_wake(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    await session.send(facts=[session.done("s1")])
    assert await kit.waiting(session.run_id) == {"wake": "f"}


@pytest.mark.parametrize("holds", ["nothing", "a step message", "a run message of another run"])
async def test_whoever_else_writes_a_decisive_event_wakes_the_run(kit: StoreKit, holds: str) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    step = await kit.take_one("c2")
    claim = await kit.claim("c2", step)
    other = await kit.session("c2")
    carrier = {"nothing": None, "a step message": step, "a run message of another run": other.delivery}[holds]
    writer = Session(kit, session.run_id, carrier, "c2", seq=other.seq if carrier is other.delivery else 1)
    reply = await writer.send(facts=[session.done("s1")._replace(epoch=claim.epoch)])
    assert (reply.answer, reply.facts) == (A.OK, [A.OK])
    assert (await kit.waiting(session.run_id))["wake"] == "r"


# --- bells ------------------------------------------------------------------------------------------


async def test_a_bell_rings_once_for_any_number_of_messages(kit: StoreKit) -> None:
    await _fan_out(kit, 5)
    assert await _rings(kit) == 1
    await kit.take("c2", steps=2)
    assert await _rings(kit) == 1, "work is left: the next worker is told"
    await kit.take("c2", steps=9)
    assert await _rings(kit) == 0


async def test_a_bell_tells_of_what_is_due_before_the_next_look(kit: StoreKit) -> None:
    await _rings(kit)
    await kit.start(due_in=5_000)
    assert await _rings(kit) == 0, "every worker looks again within a second"
    await kit.start(due_in=500)
    assert await _rings(kit) == 1
    await kit.start(due_in=700)
    assert await _rings(kit) == 0, "the earlier one is known"


async def test_what_falls_due_and_is_handed_out_at_once_rings_no_bell(kit: StoreKit) -> None:
    """Its ring would cost somebody a take that finds nothing."""
    await kit.start(due_in=5_000)
    session = await kit.session()
    await kit.queued_step(session)
    await kit.queue("c2").defer(0, [(await kit.take_one("c2")).held], due_in=5_000)
    await kit.clock.advance(5_000)
    await _rings(kit)
    assert {d.kind for d in await kit.take("c2")} == {Kind.RUN, Kind.STEP}
    assert await _rings(kit) == 0


@pytest.mark.parametrize(
    ("runs", "steps"),
    [(0, 0), (1, 9), (9, 1)],
    ids=["no room", "room for one of two runs", "room for one of two steps"],
)
async def test_what_falls_due_and_is_not_handed_out_rings(kit: StoreKit, runs: int, steps: int) -> None:
    await _fan_out(kit, 2)
    held = [delivery.held for delivery in await kit.take("c2")]
    await kit.queue("c2").defer(0, held, due_in=5_000)
    for _ in range(2):
        await kit.start(due_in=5_000)
    await kit.clock.advance(5_000)
    await _rings(kit)
    assert len(await kit.take("c2", runs=runs, steps=steps)) == min(2, runs) + min(2, steps)
    assert await _rings(kit) == 1


async def test_what_falls_due_rings_the_bell_of_its_own_queue_alone(kit: StoreKit) -> None:
    for queue in ("fast", "slow"):
        await kit.start(queue=queue, due_in=5_000)
    await kit.clock.advance(5_000)
    for queue in ("fast", "slow"):
        await _rings(kit, queue)
    taken = await kit.queue().take(0, ["fast", "slow"], runs=1, steps=0, empty=True)
    assert [d.queue for d in taken.deliveries] == ["fast"]
    assert (await _rings(kit, "fast"), await _rings(kit, "slow")) == (0, 1)


async def test_a_queue_known_to_one_client_alone_is_served_by_all(kit: StoreKit) -> None:
    """A client that has never heard of a queue calls scripts that touch messages there."""
    other = await kit.another_world()
    run_id = new_run_id(0)
    await kit.start(run_id=run_id, queue="special")
    assert other.queues(0) == ["default"]
    delivery = await kit.take_one(queue="special")
    assert await Queue(other, "c1").renew(0, [delivery.held]) == ["ok"]
    assert other.queues(0) == ["default", "special"]


async def test_two_clients_with_a_queue_each_agree_on_one_list(kit: StoreKit) -> None:
    others = [await kit.another_world(queues=["default", name]) for name in ("a", "b")]
    for world, name in zip(others, "ab", strict=True):
        await Queue(world, "c1").take(0, [name], runs=1, steps=1, empty=True)
    await Queue(others[0], "c1").take(0, ["a"], runs=1, steps=1, empty=True)
    assert [sorted(world.queues(0)) for world in others] == [["a", "b", "default"]] * 2


# --- the clock and the server -----------------------------------------------------------------------


async def test_time_never_runs_back(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.clock.set(START_OF_TIME - 60_000)
    assert await kit.queue().renew(0, [session.held]) == ["ok"]
    reply = await session.send(decisions=[Decision(E.WAIT_CREATED, "w1", due_in=1_000)])
    assert (reply.now, reply.events[-1].extra) == (START_OF_TIME, str(START_OF_TIME + 1_000))
    await kit.clock.advance(1_000)
    assert (await session.send()).now == START_OF_TIME + 1_000, "and it goes on from there"


async def _replace_server(kit: StoreKit) -> None:
    """As after a restart: the partition was last written by a server of another run_id."""
    await kit.world.command("HSET", kit.world.keys.partition(0)[0], "server", "0" * 40)


async def test_a_new_server_robs_nobody_for_one_lease(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await session.send(sends=[Send(Kind.STEP, "s1", "default")])
    copy = await kit.take_one("c2")
    await _replace_server(kit)
    await kit.clock.advance(10 * LEASE)
    assert await kit.take("c3") == [], "nothing has lapsed"
    assert (await kit.claim("c2", copy)).answer is A.OWNED, "no lease counts as over"
    await kit.lease_passes(short_of=1)
    assert await kit.queue().renew(0, [session.held]) == ["ok"]
    await kit.clock.advance(1)
    assert await kit.take("c3") == [], "its holder was there to renew it"
    await kit.lease_passes()
    assert len(await kit.take("c3")) == 1


async def test_a_connection_that_leads_elsewhere_is_made_again(kit: StoreKit) -> None:
    """A proxy kept the connection while the server behind it was replaced."""
    session = await kit.session()
    link = kit.world._link
    assert link is not None
    right, link.server = link.server, "f" * 40
    before, connects = await kit.dump(), kit.world.connects
    assert await kit.queue().renew(0, [session.held]) == ["ok"]
    assert (kit.world.server, kit.world.connects) == (right, connects + 1)
    assert await kit.dump() == before, "it was not taken for a new server"
