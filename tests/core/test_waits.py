"""Sleeps and timeouts of a body are durable waits."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from tests.core.player import CREATED_AT, Player, returned
from worker.core.calls import (
    WaitCall,
)
from worker.sdk.calls import (
    sleep,
    sleep_until,
)
from worker.sdk.registry import Workflows
from world_redis.events import EventType

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def test_sleep_is_a_wait_of_that_length() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        await asyncio.gather(sleep("1h"), sleep(0.0001), sleep(timedelta(seconds=2)), asyncio.sleep(30))

    waits = [call for call in Player(renew).body.open.values() if isinstance(call, WaitCall)]
    assert [(wait.id, wait.due_in) for wait in waits] == [
        ("w1", 3_600_000),
        ("w2", 1),
        ("w3", 2_000),
        ("w4", 30_000),
    ]


def test_sleep_until_is_an_absolute_wait() -> None:
    wf = Workflows()
    moment = datetime.fromtimestamp(CREATED_AT / 1000 + 60, UTC)

    @wf.workflow
    async def renew() -> None:
        await asyncio.gather(sleep_until(moment), sleep(moment))

    waits = [call for call in Player(renew).body.open.values() if isinstance(call, WaitCall)]
    assert [wait.due_at for wait in waits] == [CREATED_AT + 60_000] * 2


def test_sleeping_for_nothing_never_becomes_a_wait() -> None:
    wf = Workflows()
    past = datetime.fromtimestamp(CREATED_AT / 1000 - 60, UTC)

    @wf.workflow
    async def renew() -> str:
        await sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(-1)
        await sleep_until(past)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(0)
        return "done"

    player = Player(renew)
    assert returned(player) == "done"
    assert [event.type for event in player.log] == [EventType.RUN_CREATED, EventType.RUN_STARTED]


def test_a_timeout_is_a_wait_that_interrupts() -> None:
    wf = Workflows()

    @wf.step
    async def slow() -> None: ...

    @wf.workflow
    async def renew() -> str:
        try:
            async with asyncio.timeout(30):
                await slow()
        except TimeoutError:
            return "late"
        return "in time"

    player = Player(renew)
    assert player.open == ["wait (w1)", "step slow (s1)"]
    player.fire("w1")
    assert returned(player) == "late"
    assert player.body.dropped == {"s1"}


def test_a_timeout_that_did_not_come_is_dropped() -> None:
    wf = Workflows()

    @wf.step
    async def slow() -> None: ...

    @wf.workflow
    async def renew() -> None:
        async with asyncio.timeout(30):
            await slow()
        await slow()

    player = Player(renew)
    player.complete("s1")
    assert player.body.dropped == {"w1"}
    player.body.withdrawn(["w1"])
    assert player.open == ["step slow (s2)"]
    player.fire("w1")  # it was on its way already
    player.complete("s2")
    assert returned(player) is None
    player.check_every_prefix()


def test_the_end_of_a_dropped_wait_is_skipped() -> None:
    wf = Workflows()

    @wf.step
    async def slow() -> None: ...

    @wf.workflow
    async def renew() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(slow(), 30)
        await slow()

    player = Player(renew)
    player.complete("s1")
    player.fire("w1")
    assert player.open == ["step slow (s2)"]
    assert player.body.problem is None
    player.check_every_prefix()
