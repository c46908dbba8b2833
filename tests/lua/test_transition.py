"""Facts are kept, decisions are all or none, the same transition twice is one."""

from typing import Any

import pytest

from tests.lua.kit import A, E, Session, StoreKit, run_message
from world_redis.errors import ScriptError
from world_redis.events import START, Position
from world_redis.ids import new_mark, new_run_id
from world_redis.messages import Held, Kind
from world_redis.transition import Decision, Epoch, Fact, Send, Transition

# --- the position -----------------------------------------------------------------------------------


async def test_a_fact_is_written_although_the_decisions_that_bet_on_it_are_stale(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    await kit.resume(session.run_id)
    head = session.seen
    reply = await session.send(
        facts=[session.done("s1")], advanced=True, decisions=[Decision(E.STEP_CREATED, "s2")]
    )
    assert (reply.answer, reply.facts) == (A.STALE, [A.OK])
    assert [(event.slot, event.type) for event in reply.events] == [
        (head + 1, E.HOOK_RECEIVED),
        (head + 2, E.STEP_COMPLETED),
    ], "the events the writer has not seen, its own fact among them, and no other"
    assert "step_created:s2" not in await kit.types(session.run_id)


@pytest.mark.parametrize("seen", ["more than the log holds", "another event in its place"])
async def test_what_follows_from_an_event_that_the_log_does_not_hold_is_not_written(
    kit: StoreKit, seen: str
) -> None:
    """So it is when a call is sent again to a server that took over and is behind."""
    session = await kit.session()
    await kit.hooked(session)
    await kit.resume(session.run_id)
    await kit.resume(session.run_id)
    now = (await session.send()).position
    lost = now._replace(decided=now.decided + 1, slot=now.slot + 1)
    if seen == "another event in its place":
        lost = now._replace(decided=now.decided - 1, slot=now.slot - 1, mark=new_mark())
    parts: list[dict[str, Any]] = [
        {"decisions": [Decision(E.WAIT_CREATED, "w1", due_in=1000)]},
        {"sends": [Send(Kind.RUN, "timer", "default", due_in=1000)]},
        {"withdraws": ["timer"]},
    ]
    for part in parts:
        reply = await session.send(learn=False, position=lost, seen=lost.slot, **part)
        assert reply.answer is A.STALE
    assert "wait_created:w1" not in await kit.types(session.run_id)
    assert (await session.send(position=now, decisions=[Decision(E.WAIT_CREATED, "w1")])).answer is A.OK


async def test_a_body_ahead_of_a_log_that_went_back_writes_no_decision(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    ahead = Position(7, 20, new_mark())
    reply = await session.send(
        position=ahead,
        seen=20,
        facts=[session.done("s1")],
        advanced=True,
        decisions=[Decision(E.STEP_CREATED, "s2")],
    )
    assert reply.answer is A.STALE
    assert reply.position.decided == 1


async def test_equal_numbers_with_another_mark_are_another_history(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1", "s2")
    await session.send(facts=[session.done("s1")], advanced=True)
    assert session.position is not None
    other = session.position._replace(mark=b"othermrk")
    reply = await session.send(position=other, facts=[session.done("s2")], advanced=True)
    assert reply.answer is A.STALE


async def test_creates_need_no_fence(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await kit.resume(session.run_id)
    reply = await session.send(position=START, decisions=[Decision(E.STEP_CREATED, "s1")])
    assert reply.answer is A.OK


async def test_a_body_advanced_on_a_result_already_there_is_stale(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    done = session.done("s1")
    await session.send(facts=[done])
    reply = await session.send(facts=[done], advanced=True, decisions=[Decision(E.STEP_CREATED, "s2")])
    assert (reply.answer, reply.facts) == (A.STALE, [A.EXISTS])
    assert (await session.send(facts=[done])).answer is A.OK, "without a bet a repeat is harmless"


# --- settling ---------------------------------------------------------------------------------------


async def test_a_run_message_is_not_settled_while_its_body_has_an_event_to_see(kit: StoreKit) -> None:
    """The wake of the event was merged with the very message that is about to be settled."""
    session = await kit.session()
    await kit.hooked(session)
    position = session.position
    await kit.resume(session.run_id)
    reply = await session.send(position=position, settles=[session.held])
    assert (reply.answer, reply.unsettled) == (A.OK, True)
    reply = await session.send(settles=[session.held])
    assert (reply.answer, reply.unsettled) == (A.OK, False)
    assert (await kit.record(session.run_id))["settled"].startswith(b"2:")


async def test_a_second_wake_is_not_settled_by_the_pass_of_the_first(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await kit.resume(session.run_id)
    second = await kit.take_one()
    assert second.key == "wake" and second.message_id != session.held.message_id
    reply = await session.send(settles=[second.held, session.held])
    assert reply.unsettled, "the body has not seen the payload"
    assert set((await kit.waiting(session.run_id)).values()) == {"f"}


async def test_unsettled_still_writes_creates_starts_and_sends(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    position = session.position
    await kit.resume(session.run_id)
    reply = await session.send(
        position=position,
        decisions=[
            Decision(E.STEP_CREATED, "s1"),
            Decision(E.STEP_STARTED, "s1", mode="inline"),
            Decision(E.STEP_CREATED, "s2"),
        ],
        sends=[Send(Kind.STEP, "s2", "default")],
        settles=[session.held],
    )
    assert (reply.answer, reply.unsettled, list(reply.starts)) == (A.OK, True, ["s1"])
    assert (await kit.waiting(session.run_id))["s2"] == "r"


async def test_a_transition_that_opens_a_hook_settles_nothing(kit: StoreKit) -> None:
    session = await kit.session()
    reply = await session.send(
        decisions=[Decision(E.HOOK_CREATED, "h1", token="token-h1")], settles=[session.held]
    )
    assert (reply.answer, reply.unsettled) == (A.OK, True)
    again = await session.send(
        decisions=[Decision(E.HOOK_CREATED, "h1", token="token-h1")], settles=[session.held]
    )
    assert (again.answer, again.unsettled) == (A.OK, False), "the repeat wrote nothing"


async def test_a_fact_the_body_was_not_advanced_on_settles_nothing(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    reply = await session.send(facts=[session.done("s1")], settles=[session.held])
    assert (reply.facts, reply.unsettled) == ([A.OK], True)


async def test_a_settle_without_a_position_is_refused(kit: StoreKit) -> None:
    session = await kit.session()
    assert (await session.send(position=None, settles=[session.held])).unsettled


async def test_the_end_of_a_pass_that_has_seen_all_sends_no_wake(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.inline("s1")
    reply = await session.send(facts=[session.done("s1")], advanced=True, settles=[session.held])
    assert (reply.answer, reply.unsettled) == (A.OK, False)
    assert await kit.waiting(session.run_id) == {}


async def test_a_run_does_not_end_before_its_body_has_seen_all(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    position = session.position
    await kit.resume(session.run_id)
    reply = await session.send(
        position=position, decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held]
    )
    assert (reply.answer, reply.status) == (A.STALE, "running")
    assert (await session.send(decisions=[Decision(E.RUN_COMPLETED)])).status == "completed"


async def test_a_parked_run_does_not_end_unseen_either(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    position = session.position
    await kit.resume(session.run_id)
    other = await kit.take_one("c2")
    await kit.queue("c2").refuse(
        session.run_id, [other.held], reason="X", detail="", build="b", park_after=0, back_in=0
    )
    reply = await session.send(position=position, decisions=[Decision(E.RUN_COMPLETED)])
    assert (reply.answer, reply.parked) == (A.STALE, "X")
    reply = await session.send(position=position, settles=[session.held])
    assert not reply.unsettled, "what arrives for a parked run is settled"
    assert "settled" not in await kit.record(session.run_id), "but no pass has seen all"


# --- all or none ------------------------------------------------------------------------------------


async def test_one_refused_decision_refuses_all_of_them(kit: StoreKit) -> None:
    session = await kit.session()
    other = Session(kit, session.run_id, None, "c2")
    before = await kit.types(session.run_id)
    reply = await session.send(
        decisions=[
            Decision(E.STEP_CREATED, "s1"),
            Decision(E.STEP_STARTED, "s2", mode="inline"),
            Decision(E.WAIT_CREATED, "w1", due_in=10),
        ],
        sends=[Send(Kind.STEP, "s1", "default"), Send(Kind.RUN, "timer", "default", due_in=10)],
        settles=[session.held],
    )
    assert (reply.answer, reply.decisions) == (A.CONFLICT, [A.OK, A.NOT_FOUND, A.OK])
    assert await kit.types(session.run_id) == before
    assert await kit.waiting(session.run_id) == {"wake": "f"}
    assert (await other.send(decisions=[Decision(E.STEP_CREATED, "s1")])).answer is A.SUPERSEDED


async def test_decisions_need_a_delivery_facts_do_not(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    stranger = Session(kit, session.run_id, None, "c2", epochs=session.epochs)
    reply = await stranger.send(facts=[stranger.done("s1")], decisions=[Decision(E.STEP_CREATED, "s2")])
    assert (reply.answer, reply.facts) == (A.SUPERSEDED, [A.OK])
    assert (await kit.waiting(session.run_id))["wake"] == "r"


async def test_what_may_repeat_is_skipped_not_refused(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    decisions = [
        Decision(E.RUN_STARTED),
        Decision(E.STEP_CREATED, "s1", b"in"),
        Decision(E.STEP_CREATED, "s2"),
    ]
    reply = await session.send(decisions=decisions)
    assert (reply.answer, reply.decisions) == (A.OK, [A.EXISTS, A.EXISTS, A.OK])


async def test_a_run_starts_once_in_one_batch(kit: StoreKit) -> None:
    run_id = await kit.start()
    session = Session(kit, run_id, await kit.take_one(), seen=1)
    reply = await session.send(decisions=[Decision(E.RUN_STARTED), Decision(E.RUN_STARTED)])
    assert reply.decisions == [A.OK, A.EXISTS]


async def test_two_hundred_decisions_in_call_order(kit: StoreKit) -> None:
    session = await kit.session()
    ids = [f"s{number}" for number in range(1, 201)]
    reply = await session.send(
        decisions=[Decision(E.STEP_CREATED, id, b"in") for id in ids],
        sends=[Send(Kind.STEP, id, "default", b"in") for id in ids],
    )
    assert reply.decisions == [A.OK] * 200
    assert [event.id for event in reply.events] == ids
    assert [d.key for d in await kit.take(steps=200)] + [d.key for d in await kit.take(steps=200)] == ids


async def test_the_log_has_a_ceiling_and_the_run_can_still_end(kit: StoreKit) -> None:
    session = await kit.session()
    log = kit.log(max_events=4)

    async def send(**parts: Any) -> Any:
        session.seq += 1
        t = Transition(
            session.run_id,
            new_mark(),
            session.held,
            session.seq,
            seen=session.seen,
            position=session.position,
            **parts,
        )
        return await log.append(t, queue="default")

    creates = [Decision(E.STEP_CREATED, f"s{number}") for number in (1, 2, 3)]
    assert (await send(decisions=creates)).answer is A.INVALID
    assert (await send(decisions=creates[:2])).answer is A.OK
    reply = await send(decisions=[Decision(E.RUN_FAILED, data=b"MAX_EVENTS")], settles=[session.held])
    assert (reply.answer, reply.status) == (A.OK, "failed")


@pytest.mark.parametrize(
    "parts",
    [
        {"facts": [Fact(E.HOOK_RECEIVED, "h1")]},
        {"facts": [Fact(E.RUN_CANCEL_REQUESTED, "")]},
        {"facts": [Fact(E.STEP_COMPLETED, "x")]},
        {"decisions": [Decision(E.STEP_COMPLETED, "s1")]},
        {"decisions": [Decision(E.STEP_CREATED, "step1")]},
        {"decisions": [Decision(E.STEP_CREATED, "w1")]},
        {"decisions": [Decision(E.STEP_CREATED, "s1", mode="child")]},
    ],
    ids=["hook", "cancel", "id", "not a decision", "long id", "other kind", "no child"],
)
async def test_a_malformed_transition_writes_nothing(kit: StoreKit, parts: dict[str, Any]) -> None:
    session = await kit.session()
    await session.inline("s1")
    before = await kit.dump()
    with pytest.raises(ScriptError, match="malformed"):
        await session.send(facts=[session.done("s1"), *parts.pop("facts", [])], **parts)
    assert await kit.dump() == before


# --- exactly once -----------------------------------------------------------------------------------


async def test_the_same_transition_twice_is_one(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    reply = await session.send(
        facts=[session.done("s1")],
        advanced=True,
        decisions=[Decision(E.STEP_CREATED, "s2"), Decision(E.STEP_STARTED, "s2", mode="inline")],
        sends=[Send(Kind.RUN, "timer", "default", due_in=500)],
    )
    before = await kit.dump()
    again = await session.resend()
    assert (again.answer, again.facts, again.decisions, again.starts) == (
        reply.answer,
        reply.facts,
        reply.decisions,
        reply.starts,
    )
    assert again.events == reply.events
    assert await kit.dump() == before


async def test_a_refused_transition_twice_is_refused_twice(kit: StoreKit) -> None:
    session = await kit.session()
    reply = await session.send(decisions=[Decision(E.STEP_STARTED, "s9", mode="inline")])
    again = await session.resend()
    assert (again.answer, again.decisions) == (reply.answer, reply.decisions) == (A.CONFLICT, [A.NOT_FOUND])


@pytest.mark.parametrize("ends", [False, True], ids=["pass", "run"])
async def test_the_last_transition_of_a_message_resent_is_gone_which_is_success(
    kit: StoreKit, ends: bool
) -> None:
    session = await kit.session()
    await kit.hooked(session)
    decisions = [Decision(E.RUN_COMPLETED)] if ends else []
    await session.send(decisions=decisions, settles=[session.held])
    before = await kit.dump()
    assert (await session.resend()).answer in (A.GONE, A.EXPIRED)
    assert await kit.dump() == before


async def test_a_retry_resent_after_its_settle_retries_once(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.queued_step(session)
    delivery = await kit.take_one("c2")
    claim = await kit.claim("c2", delivery)
    step = Session(kit, session.run_id, delivery, "c2", seq=1)
    retry = Fact(
        E.STEP_RETRYING, "s1", epoch=claim.epoch, due_in=1000, send=Send(Kind.STEP, "s1", "default", b"again")
    )
    await step.send(facts=[retry], settles=[delivery.held])
    before = await kit.dump()
    assert (await step.resend()).answer is A.GONE
    assert await kit.dump() == before


@pytest.mark.parametrize(
    ("number", "seq", "consumer", "answer"),
    [
        (1, 2, "c1", A.SUPERSEDED),
        (2, 2, "c1", A.LOST),
        (2, 1, "c2", A.OK),
        (2, 2, "c2", A.LOST),
        (2, 0, "c2", A.LOST),
        (3, 1, "c2", A.LOST),
        (2, 1, "c1", A.LOST),
    ],
    ids=[
        "earlier delivery",
        "other holder",
        "the next",
        "a gap",
        "before the first",
        "later delivery",
        "other consumer",
    ],
)
async def test_a_transition_names_message_delivery_and_sequence(
    kit: StoreKit, number: int, seq: int, consumer: str, answer: A
) -> None:
    session = await kit.session()
    await kit.lease_passes()
    again = await kit.take_one("c2")
    assert (again.message_id, again.number) == (session.held.message_id, 2)
    writer = Session(kit, session.run_id, session.delivery, consumer)
    reply = await writer.send(
        delivery=Held(again.message_id, number), seq=seq, decisions=[Decision(E.STEP_CREATED, "s1")]
    )
    assert reply.answer is answer
    assert ("step_created:s1" in await kit.types(session.run_id)) == (answer is A.OK)


async def test_the_same_number_with_another_mark_is_lost(kit: StoreKit) -> None:
    session = await kit.session()
    reply = await session.send(seq=1, decisions=[Decision(E.STEP_CREATED, "s1")])
    assert reply.answer is A.LOST


async def test_a_late_writer_keeps_its_result_and_nothing_else(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await kit.lease_passes()
    await kit.take_one("c2")
    reply = await session.send(
        facts=[session.done("s1")], advanced=True, decisions=[Decision(E.STEP_CREATED, "s2")]
    )
    assert (reply.answer, reply.facts) == (A.SUPERSEDED, [A.OK])
    assert await kit.waiting(session.run_id) == {"wake*": "f", "wake": "r"}, "and a wake tells of it"


async def test_joined_messages_that_were_lost_are_skipped(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await kit.resume(session.run_id)
    joined = await kit.take_one()
    session.learn(await session.send())
    await kit.queue().defer(0, [joined.held])
    reply = await session.send(settles=[joined.held, session.held])
    assert (reply.answer, reply.unsettled) == (A.OK, False)
    assert await kit.waiting(session.run_id) == {"wake": "r"}


async def test_only_messages_of_this_run_are_settled(kit: StoreKit) -> None:
    session = await kit.session()
    other = await kit.session()
    await session.send(settles=[other.held])
    assert await kit.waiting(other.run_id) == {"wake": "f"}


async def test_a_message_of_a_run_that_is_no_more_is_settled(kit: StoreKit) -> None:
    session = await kit.session()
    run_id = session.run_id
    await session.send(decisions=[Decision(E.RUN_COMPLETED)])
    for key in kit.world.keys.run(0, run_id):
        await kit.world.command("DEL", key)
    await kit.world.command("ZREM", kit.world.keys.partition(0)[3], run_id)
    assert (await session.send(settles=[session.held])).answer is A.NOT_FOUND
    assert await kit.waiting(run_id) == {}


async def test_a_late_result_does_not_bring_an_expired_log_back(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await session.send(decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held])
    for key in kit.world.keys.run(0, session.run_id):
        await kit.world.command("DEL", key)
    await kit.world.command("ZREM", kit.world.keys.partition(0)[3], session.run_id)
    reply = await session.send(facts=[session.done("s1")])
    assert reply.answer is A.NOT_FOUND
    assert not [key for key in await kit.dump() if session.run_id in key]


async def test_a_start_resent_is_the_same_start_and_another_one_is_not(kit: StoreKit) -> None:
    run_id = new_run_id(0)
    message = run_message(run_id)
    assert await kit.runs.start(run_id, message, b"input") is A.OK
    before = await kit.dump()
    assert await kit.runs.start(run_id, message, b"input") is A.OK
    assert await kit.runs.start(run_id, run_message(run_id), b"other") is A.EXISTS
    assert await kit.dump() == before


async def test_an_old_epoch_is_superseded_and_the_same_one_twice_exists(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    old = Epoch(session.seen, b"oldmark8")
    for type in (E.STEP_COMPLETED, E.STEP_FAILED, E.STEP_RETRYING):
        reply = await session.send(facts=[Fact(type, "s1", epoch=old)])
        assert reply.facts == [A.SUPERSEDED]
    assert (await session.send(facts=[session.done("s1")])).facts == [A.OK]
    assert (await session.send(facts=[session.done("s1")])).facts == [A.EXISTS]
