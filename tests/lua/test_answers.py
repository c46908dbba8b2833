"""The events an answer brings: those after `seen`, as the log has them, whoever wrote them."""

from typing import Any

import msgpack

from tests.lua.kit import A, E, Session, StoreKit
from world_redis.events import Event
from world_redis.log import Log
from world_redis.messages import Kind
from world_redis.scripts import ScriptCall
from world_redis.transition import Decision, Epoch, Fact, Reply, Send


async def _log_after(kit: StoreKit, run_id: str, seen: int) -> list[Event]:
    page = await kit.log().read(run_id, seen=seen)
    assert page is not None and not page.more
    return page.events


async def _as_the_log(session: Session, **parts: Any) -> Reply:
    """Send, and compare what comes back with the log."""
    seen = parts.setdefault("seen", session.seen)
    reply = await session.send(**parts)
    assert reply.answer is A.OK
    assert reply.events == await _log_after(session.kit, session.run_id, seen)
    return reply


async def test_a_writer_sees_its_own_events_as_everybody_else_does(kit: StoreKit) -> None:
    session = await kit.session()
    await _as_the_log(
        session,
        decisions=[
            Decision(E.STEP_CREATED, "s1", b"in"),
            Decision(E.STEP_STARTED, "s1", mode="inline"),
            Decision(E.STEP_CREATED, "s2", b"in too"),
            Decision(E.WAIT_CREATED, "w1", b"wait", due_in=5),
            Decision(E.HOOK_CREATED, "h1", b"hook", token="token-h1"),
            Decision(E.ATTR_SET, "a1", b"colour"),
        ],
        sends=[Send(Kind.STEP, "s2", "default", b"in too")],
    )
    await kit.clock.advance(10)
    retry = Fact(E.STEP_RETRYING, "s1", b"why", epoch=session.epochs["s1"], due_in=7)
    await _as_the_log(session, facts=[Fact(E.WAIT_COMPLETED, "w1", b"woke", 3), retry])
    await _as_the_log(session, decisions=[Decision(E.RUN_COMPLETED, "", b"result")], settles=[session.held])


async def test_what_was_refused_or_there_already_is_not_among_them(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    wrong = Fact(E.STEP_COMPLETED, "s1", b"of another execution", epoch=Epoch(session.seen, b"another1"))
    reply = await session.send(
        facts=[wrong, session.done("s1", b"true"), session.done("s1", b"late")], learn=False
    )
    assert reply.facts == [A.SUPERSEDED, A.OK, A.EXISTS]
    assert [(event.id, event.data) for event in reply.events] == [("s1", b"true")]
    decisions = [Decision(E.STEP_CREATED, "s1", b"again"), Decision(E.STEP_CREATED, "s2", b"new")]
    await _as_the_log(session, decisions=decisions)


async def test_an_end_comes_last_wherever_it_was_named(kit: StoreKit) -> None:
    session = await kit.session()
    decisions = [Decision(E.RUN_COMPLETED, "", b"result"), Decision(E.ATTR_SET, "a1", b"colour")]
    reply = await _as_the_log(session, decisions=decisions, settles=[session.held])
    assert [event.data for event in reply.events] == [b"colour", b"result"]


async def test_what_others_wrote_meanwhile_comes_first(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await kit.resume(session.run_id)
    reply = await _as_the_log(session, decisions=[Decision(E.STEP_CREATED, "s1", b"in")])
    assert [event.type for event in reply.events] == [E.HOOK_RECEIVED, E.STEP_CREATED]
    again = await session.resend()
    assert again.events == reply.events


async def test_a_page_of_others_leaves_no_gap_before_ones_own(kit: StoreKit) -> None:
    session = await kit.session()
    for part in range(4):
        ids = [f"s{part * 150 + number}" for number in range(1, 151)]
        await session.send(decisions=[Decision(E.STEP_CREATED, id) for id in ids])
    reply = await session.send(decisions=[Decision(E.ATTR_SET, "a1", b"colour")], seen=2)
    assert [event.slot for event in reply.events] == list(range(3, 503)) and reply.more
    rest = await _log_after(kit, session.run_id, 502)
    assert (rest[-1].slot, rest[-1].data) == (reply.head, b"colour")


async def test_a_log_that_went_back_brings_what_lies_beyond(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1", "s2")
    facts = [session.done("s1"), session.done("s2")]
    reply = await session.send(facts=facts, seen=session.seen + 1, position=None)
    assert [(event.slot, event.id) for event in reply.events] == [(reply.head, "s2")]


async def test_the_log_is_as_sent_only_if_all_was_written_and_nothing_stands_before_it(kit: StoreKit) -> None:
    """A writer that is told so learns no event of it: one that it overlooked would be missing for ever."""
    session = await kit.session()
    begun = await session.inline("s1")
    assert begun.as_sent and [event.id for event in begun.events] == ["s1", "s1"]
    assert not (await session.resend()).as_sent, "perhaps somebody wrote between the two sendings"
    before = session.seen
    done = [session.done("s1")]
    assert (await session.send(facts=done, position=None)).as_sent
    assert not (await session.send(facts=done, position=None)).as_sent, "it was there already"
    known = [Decision(E.STEP_CREATED, "s1", b"in"), Decision(E.STEP_CREATED, "s2")]
    assert not (await session.send(decisions=known)).as_sent, "one of the two was there already"
    refused = await session.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])
    assert (refused.answer, refused.as_sent) == (A.CONFLICT, False)
    overlooked = await session.send(decisions=[Decision(E.STEP_CREATED, "s3")], seen=before)
    assert (overlooked.answer, overlooked.as_sent) == (A.OK, False), "the end of s1 was not seen"
    assert not overlooked.more and overlooked.others
    assert (await session.send(decisions=[Decision(E.STEP_CREATED, "s4")])).as_sent


async def test_a_payload_is_not_sent_back_to_its_writer(kit: StoreKit) -> None:
    sizes = []

    async def caller(call: ScriptCall) -> list[Any]:
        reply = await kit.world(call)
        sizes.append(len(msgpack.packb(reply)))
        return reply

    session = await kit.session()
    kit.log = lambda consumer="c1", **_: Log(caller, consumer)  # type: ignore[method-assign]
    reply = await session.send(decisions=[Decision(E.STEP_CREATED, "s1", b"x" * 100_000)])
    assert len(reply.events[0].data) == 100_000
    assert max(sizes) < 500
