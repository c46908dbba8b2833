"""Payloads for hooks, and the registry of user-chosen tokens."""

from tests.lua.kit import RETENTION, A, E, Session, StoreKit
from world_redis.hooks import HookAddress, Tokens, address_of
from world_redis.ids import new_run_id
from world_redis.transition import Decision


async def test_a_payload_is_recorded_and_wakes(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await session.send(settles=[session.held])
    answer, slot = await kit.resume(session.run_id)
    assert (answer, slot) == (A.OK, 4)
    assert await kit.waiting(session.run_id) == {"wake": "r"}


async def test_the_same_resume_answers_the_same_event_for_ever(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    first = await kit.resume(session.run_id, "r1")
    before = await kit.dump()
    assert await kit.resume(session.run_id, "r1") == first
    assert await kit.dump() == before
    assert (await kit.resume(session.run_id, "r2"))[1] == first[1] + 1
    session.learn(await session.send())
    await session.send(decisions=[Decision(E.HOOK_DISPOSED, "h1")])
    assert await kit.resume(session.run_id, "r1") == first, "closed meanwhile"
    await session.send(decisions=[Decision(E.RUN_COMPLETED)], settles=[session.held])
    assert await kit.resume(session.run_id, "r1") == first, "finished meanwhile"
    assert await kit.resume(session.run_id, "r3") == (A.EXPIRED, 0)


async def test_only_an_open_hook_and_its_own_token(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    before = await kit.dump()
    hook = HookAddress(session.run_id, "h1")
    assert await kit.hooks.resume(hook, "guess", "r1", b"") == (A.NOT_FOUND, 0)
    assert await kit.resume(session.run_id, hook="h2") == (A.NOT_FOUND, 0)
    assert await kit.resume(new_run_id(0)) == (A.NOT_FOUND, 0)
    assert await kit.dump() == before
    await session.send(decisions=[Decision(E.HOOK_DISPOSED, "h1")])
    assert await kit.resume(session.run_id) == (A.GONE, 0)


async def test_a_conflict_uses_the_hooks_number(kit: StoreKit) -> None:
    session = await kit.session()
    reply = await session.send(decisions=[Decision(E.HOOK_CONFLICT, "h1"), Decision(E.HOOK_DISPOSED, "h1")])
    assert reply.decisions == [A.OK, A.EXISTS]
    assert (await session.send(decisions=[Decision(E.HOOK_CREATED, "h1", token="t")])).decisions == [A.EXISTS]
    assert await kit.resume(session.run_id) == (A.GONE, 0)


async def test_payloads_for_a_parked_run_are_kept_for_later(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await kit.queue().refuse(
        session.run_id, [session.held], reason="X", detail="", build="b", park_after=0, back_in=0
    )
    assert (await kit.resume(session.run_id))[0] is A.OK
    assert await kit.waiting(session.run_id) == {}
    await kit.runs.unpark(session.run_id)
    again = Session(kit, session.run_id, await kit.take_one())
    assert [event.type for event in (await again.send(seen=3)).events] == [E.HOOK_RECEIVED]


# --- tokens -----------------------------------------------------------------------------------------


def test_a_default_token_leads_to_its_hook() -> None:
    run_id = new_run_id(7)
    assert address_of(f"{run_id}.3.secret") == HookAddress(run_id, "h3")
    for chosen in ("order-42", f"{run_id}.3.", f"{run_id}.x.secret", "wrun_1.2.3"):
        assert address_of(chosen) is None


async def test_a_chosen_token_has_one_holder(kit: StoreKit) -> None:
    tokens = Tokens(kit.world)
    mine, theirs = HookAddress(new_run_id(0), "h1"), HookAddress(new_run_id(0), "h2")
    assert await tokens.find("order-42") is None
    assert await tokens.claim("order-42", mine) == mine
    assert await tokens.claim("order-42", mine) == mine, "a resend"
    assert await tokens.claim("order-42", theirs) == mine
    assert await tokens.take_over("order-42", mine, theirs)
    assert await tokens.take_over("order-42", mine, theirs), "a resend"
    third = HookAddress(new_run_id(0), "h3")
    assert not await tokens.take_over("order-42", mine, third), "it moved meanwhile"
    await tokens.release("order-42", mine)
    assert await tokens.find("order-42") == theirs
    await tokens.release("order-42", theirs)
    assert await tokens.find("order-42") is None
    assert await tokens.take_over("order-42", theirs, third), "nobody holds it"
    await tokens.release("order-42", third)


async def test_hooks_close_with_the_run(kit: StoreKit) -> None:
    session = await kit.session()
    await kit.hooked(session)
    await kit.runs.terminate(session.run_id, b"", retention_ms=RETENTION)
    assert await kit.resume(session.run_id) == (A.EXPIRED, 0)
    await session.send(settles=[session.held])
