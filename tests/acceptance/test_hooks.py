"""Payloads from outside."""

import pytest

from tests.acceptance import app
from tests.acceptance.kit import Fleet
from worker import HookNotFoundError


async def test_async_for_takes_every_payload_in_order(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.collects)
    token = await fleet.hook_token(run)
    for word in ["one", "two", "three", "stop"]:
        await fleet.client.resume(token, app.Go(word))
    assert await run.return_value(timeout=10) == ["one", "two", "three"]


async def test_a_resume_repeated_under_its_key_arrives_once(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.collects)
    token = await fleet.hook_token(run)
    for _ in range(3):
        await fleet.client.resume(token, app.Go("once"), idempotency_key="k")
    await fleet.client.resume(token, app.Go("stop"))
    assert await run.return_value(timeout=10) == ["once"]


async def test_a_token_held_by_a_live_run_is_a_conflict_and_free_after_it(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    holder = await fleet.start(app.named_hook, "order-1")
    await fleet.hook_token(holder)
    contender = await fleet.start(app.named_hook, "order-1")
    assert await contender.return_value(timeout=10) == f"held by {holder.run_id}"
    await fleet.client.resume("order-1", app.Go("paid"))
    assert await holder.return_value(timeout=10) == "paid"

    later = await fleet.start(app.named_hook, "order-1")
    await fleet.hook_token(later)
    await fleet.client.resume("order-1", app.Go("again"))
    assert await later.return_value(timeout=10) == "again"


async def test_a_disposed_hook_refuses_payloads(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.closes_its_hook)
    token = await fleet.hook_token(run)
    await fleet.client.resume(token, app.Go("first"))
    await fleet.effects.started("after")
    with pytest.raises(HookNotFoundError):
        await fleet.client.resume(token, app.Go("late"))
    fleet.effects.open_gate("after")
    assert await run.return_value(timeout=10) == "first"


async def test_the_hook_of_a_finished_run_refuses_payloads(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.collects)
    token = await fleet.hook_token(run)
    await fleet.client.resume(token, app.Go("stop"))
    await run.return_value(timeout=10)
    with pytest.raises(HookNotFoundError):
        await fleet.client.resume(token, app.Go("late"))
