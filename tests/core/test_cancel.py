"""Cancelling a run, and cancelling what a body waits for."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio

import pytest

from tests.core.player import Approval, Player, create_of, raised, returned
from worker.core.calls import (
    Cancelled,
)
from worker.core.records import CancelRequested, HookReceived, pack
from worker.sdk.registry import Workflows
from world_redis.events import EventType

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def test_a_cancel_request_runs_finally_and_its_steps() -> None:
    wf = Workflows()

    @wf.step
    async def ship() -> None: ...

    @wf.step
    async def refund() -> None: ...

    @wf.workflow
    async def renew() -> None:
        try:
            await ship()
        finally:
            await refund()

    player = Player(renew)
    player.cancel("customer left")
    assert player.body.cancel_requested
    assert player.open == ["step ship (s1)", "step refund (s2)"]
    assert player.body.dropped == {"s1"}
    player.cancel("again")
    assert player.body.outcome is None
    player.complete("s2")
    assert player.body.outcome == Cancelled("customer left")
    player.check_every_prefix()


def test_a_body_that_swallows_the_cancel_ends_as_it_likes() -> None:
    wf = Workflows()

    @wf.step
    async def ship() -> None: ...

    @wf.workflow
    async def renew() -> str:
        try:
            await ship()
        except asyncio.CancelledError:
            return "gave up"
        return "shipped"

    player = Player(renew)
    player.cancel()
    assert returned(player) == "gave up"


def test_cancelled_error_without_a_request_is_a_failure() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        raise asyncio.CancelledError

    assert "CancelledError" in str(raised(Player(renew)))


def test_a_call_cancelled_before_it_is_recorded_is_never_sent() -> None:
    wf = Workflows()

    @wf.step
    async def one() -> None: ...

    @wf.step
    async def two() -> None: ...

    @wf.workflow
    async def renew() -> None:
        task = asyncio.create_task(one())
        await asyncio.sleep(0)
        task.cancel()
        await two()

    player = Player(renew)
    assert player.open == ["step two (s2)"]  # its number stays used
    assert [event.id for event in player.log][2:] == ["s2"]
    player.complete("s2")
    player.check_every_prefix()


def test_a_cancelled_cancellable_step_releases_its_awaiter_when_it_has_ended() -> None:
    wf = Workflows()

    @wf.step(cancellable=True)
    async def reserve() -> None: ...

    @wf.step
    async def refund() -> None: ...

    @wf.workflow
    async def renew() -> str:
        try:
            async with asyncio.timeout(10):
                await reserve()
        except TimeoutError:
            await refund()
            return "refunded"
        return "reserved"

    player = Player(renew)
    player.fire("w1")
    assert player.body.stopping == {"s1"}
    assert player.body.dropped == set()
    assert player.open == ["step reserve (s1)"]
    player.complete("s1")
    assert player.open == ["step refund (s2)"]
    player.complete("s2")
    assert returned(player) == "refunded"
    player.check_every_prefix()


def test_the_loser_of_a_race_is_dropped_and_its_end_skipped() -> None:
    wf = Workflows()

    @wf.step
    async def quick() -> int: ...

    @wf.step
    async def slow() -> int: ...

    @wf.workflow
    async def renew() -> int:
        tasks = {asyncio.create_task(quick()), asyncio.create_task(slow())}
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await quick()
        return sum(task.result() for task in done)

    player = Player(renew)
    result = player.result("s2", 9)
    player.complete("s1", 4)
    assert player.body.dropped == {"s2"}
    player.move(EventType.STEP_COMPLETED, "s2", result)
    player.move(EventType.STEP_COMPLETED, "s2", result)
    assert player.open == ["step quick (s3)"]
    player.complete("s3", 0)
    assert returned(player) == 4
    player.check_every_prefix()


def test_a_call_dropped_here_and_recorded_by_another_writer_is_open_and_dropped() -> None:
    wf = Workflows()

    @wf.step(name="one")
    async def one() -> None: ...

    @wf.step(name="two")
    async def two() -> None: ...

    @wf.workflow
    async def renew() -> None:
        hook, task = Approval.wait(), asyncio.create_task(one())
        await hook
        task.cancel()
        await two()

    player = Player(renew)
    create = player.log.pop()  # of s1; the hook's payload comes before anybody writes it
    assert create.id == "s1"
    player.write(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(b'{"yes":true}')))
    body = player.replay()
    assert [call.id for call in body.fresh] == ["s2"]
    assert not body.dropped
    player.write(*create_of(body.fresh[0]))
    player.write(create.type, create.id, create.data)
    body.learn(player.log[body.seen :])
    body.run()
    assert body.problem is None
    assert body.dropped == {"s1"}
    assert set(body.open) == {"h1", "s1", "s2"}
    assert player.replay().dropped == {"s1"}


def test_a_cancel_request_in_the_log_reaches_a_body_built_from_it() -> None:
    wf = Workflows()

    @wf.step
    async def ship() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await ship()

    player = Player(renew)
    player.log = player.log[:2]
    player.write(EventType.RUN_CANCEL_REQUESTED, "", pack(CancelRequested("early")))
    body = player.replay()
    assert body.outcome == Cancelled("early")
    assert not body.fresh


def test_a_cancellable_step_cancelled_before_it_could_be_recorded_is_never_sent() -> None:
    wf = Workflows()

    @wf.step(cancellable=True)
    async def reserve() -> None: ...

    @wf.step
    async def other() -> None: ...

    @wf.workflow
    async def renew() -> str:
        task = asyncio.create_task(reserve())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await other()
        return f"cancelled {task.cancelled()}"

    player = Player(renew)
    assert player.open == ["step other (s2)"]
    player.complete("s2")
    assert returned(player) == "cancelled True"
    player.check_every_prefix()
