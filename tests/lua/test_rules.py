"""Every event type, against every state of the run and of its subject, through the script that writes it."""

from itertools import product

import pytest

from tests.lua.kit import A, E, Session, StoreKit, run_message
from world_redis.events import RULE, STATES, Answer, EventType, judge
from world_redis.lua_rules import PATH, render
from world_redis.transition import Decision, Epoch, Fact

ENDS = {"completed": E.RUN_COMPLETED, "failed": E.RUN_FAILED, "cancelled": E.RUN_CANCELLED}
FACTS = (E.STEP_RETRYING, E.STEP_COMPLETED, E.STEP_FAILED, E.WAIT_COMPLETED)
PREFIX = {"step": "s", "wait": "w", "hook": "h", "attr": "a", "patch": "p"}


def test_the_rules_in_lua_are_those_in_python() -> None:
    assert PATH.read_text() == render(), "run `python -m world_redis.lua_rules`"


def _cases() -> list[tuple[EventType, str, str]]:
    """(type, run state, subject state) that can be had: an open entity needs a run, and dies with it unless
    it is a running step."""
    cases = []
    for type in EventType:
        subject = RULE[type].subject
        if subject == "run":
            cases += [
                (type, state, state) for state in STATES["run"] if state != "absent" or type is E.RUN_CREATED
            ]
            continue
        for run, state in product(
            ("pending", "running", "completed", "failed", "cancelled"), STATES[subject]
        ):
            survives = state in ("absent", "running", "ended")
            if run not in ENDS or survives:
                cases.append((type, run, state))
    return cases


@pytest.mark.parametrize(("type", "run_state", "state"), _cases(), ids=lambda value: str(value))
async def test_the_script_answers_what_the_table_says(
    kit: StoreKit, type: EventType, run_state: str, state: str
) -> None:
    subject = RULE[type].subject
    id = "" if subject == "run" else f"{PREFIX[subject]}1"
    session = await _run_in(kit, run_state, id, state)
    expected = judge(type, run_state, state)
    if type is E.STEP_STARTED and state == "running" and expected is A.OK:
        expected = A.OWNED  # the guard `claim`: this very delivery runs it
    before = await kit.dump()
    assert await _write(kit, session, type, id, state) is expected
    changed = await kit.dump() != before
    assert changed or expected is not A.OK, "an accepted event changes the store"
    if expected is not A.OK:
        after = await kit.types(session.run_id) if run_state != "absent" else []
        assert len(after) == _events(before, kit, session.run_id), "a refused event is not in the log"


def _events(dump: dict, kit: StoreKit, run_id: str) -> int:
    return len(dump.get(kit.world.keys.run(0, run_id)[1], ()))


async def _run_in(kit: StoreKit, run_state: str, id: str, state: str) -> Session:
    """A run in a state, with a subject in a state."""
    if run_state == "absent":
        return Session(kit, "wrun_01M8M8BKEYY1959AAGM8A2M800", None)
    run_id = await kit.start()
    session = Session(kit, run_id, await kit.take_one(), seen=1)
    if run_state == "running":
        await session.send(decisions=[Decision(E.RUN_STARTED)])
    if id and state != "absent":
        await _subject(kit, session, id, state)
    if run_state in ENDS:
        await session.send(decisions=[Decision(ENDS[run_state])])
    return session


async def _subject(kit: StoreKit, session: Session, id: str, state: str) -> None:
    creates = {
        "s": Decision(E.STEP_CREATED, id),
        "w": Decision(E.WAIT_CREATED, id),
        "h": Decision(E.HOOK_CREATED, id, token="token-h1"),
        "a": Decision(E.ATTR_SET, id),
        "p": Decision(E.PATCH_RECORDED, id),
    }
    await session.send(decisions=[creates[id[0]]])
    if id[0] == "s" and state in ("running", "retrying", "ended"):
        await session.send(decisions=[Decision(E.STEP_STARTED, id, mode="inline")])
    if state == "retrying":
        epoch = session.epochs[id]
        await session.send(facts=[Fact(E.STEP_RETRYING, id, epoch=epoch)])
    elif state == "withdrawn":
        await session.send(withdraws=[id])
    elif state == "ended" and id[0] == "s":
        await session.send(facts=[session.done(id)])
    elif state == "ended" and id[0] == "w":
        await session.send(facts=[Fact(E.WAIT_COMPLETED, id)])
    elif state == "ended" and id[0] == "h":
        await session.send(decisions=[Decision(E.HOOK_DISPOSED, id)])


async def _write(kit: StoreKit, session: Session, type: EventType, id: str, state: str) -> Answer:
    """Through the script that writes such events."""
    run_id = session.run_id
    match type:
        case E.RUN_CREATED:
            answer = await _start(kit, run_id)
        case E.RUN_CANCEL_REQUESTED:
            answer = await kit.runs.cancel(run_id, b"")
        case E.HOOK_RECEIVED:
            answer, _ = await kit.resume(run_id)
        case type if type in FACTS:
            epoch = session.epochs.get(id, Epoch(2, b"no start"))
            never_ran = type is E.STEP_FAILED and state in ("created", "retrying")
            reply = await session.send(facts=[Fact(type, id, epoch=None if never_ran else epoch)])
            answer = reply.facts[0]
        case _:
            decision = Decision(
                type,
                id,
                token="token-h1" if id == "h1" else "",
                mode="inline" if type is E.STEP_STARTED else "",
            )
            reply = await session.send(decisions=[decision])
            answer = reply.decisions[0]
    return answer


async def _start(kit: StoreKit, run_id: str) -> Answer:
    return await kit.runs.start(run_id, run_message(run_id), b"")
