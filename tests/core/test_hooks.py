"""A body waits for payloads from outside."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import contextlib
from typing import Any

import pytest

from tests.core.player import Approval, Player, raised, returned
from worker.core.calls import (
    HookCall,
)
from worker.core.records import HookReceived, pack
from worker.sdk.errors import (
    HookConflictError,
    HookDisposedError,
    TypeValidationError,
)
from worker.sdk.registry import Workflows
from world_redis.events import EventType

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def test_a_hook_gives_its_payload() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        async with Approval.wait(token="order-1", metadata={"total": 3}) as hook:
            answer = await hook
            return f"{answer.yes} {answer.by} {hook.token}"

    player = Player(renew)
    (call,) = player.body.open.values()
    assert isinstance(call, HookCall)
    assert (call.token, call.chosen, call.metadata) == ("order-1", True, b'{"total":3}')
    player.receive("h1", Approval(True, "ann"))
    assert returned(player) == "True ann order-1"
    player.check_every_prefix()


def test_payloads_are_kept_until_they_are_asked_for() -> None:
    wf = Workflows()

    @wf.step
    async def prepare() -> None: ...

    @wf.workflow
    async def renew() -> list[str]:
        async with Approval.wait() as hook:
            await prepare()
            return [(await hook).by, (await hook).by, (await hook).by]

    player = Player(renew)
    player.receive("h1", Approval(True, "ann"))
    player.receive("h1", Approval(True, "bob"))
    player.complete("s1")
    player.receive("h1", Approval(True, "cy"))
    assert returned(player) == ["ann", "bob", "cy"]
    player.check_every_prefix()


def test_a_hook_is_iterated_until_it_is_disposed() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> list[str]:
        names = []
        hook = Approval.wait()
        async for answer in hook:
            names.append(answer.by)
            if not answer.yes:
                hook.dispose()
        hook.dispose()
        return names

    player = Player(renew)
    player.receive("h1", Approval(True, "ann"))
    player.receive("h1", Approval(False, "bob"))
    assert returned(player) == ["ann", "bob"]


def test_a_late_payload_is_skipped() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> str:
        async with Approval.wait() as hook:
            await hook
        await charge()
        with contextlib.suppress(HookDisposedError):
            await hook
            return "a payload"
        return "disposed"

    player = Player(renew)
    player.receive("h1", Approval(True))
    assert [event.type for event in player.log][-2:] == [
        EventType.HOOK_DISPOSED,
        EventType.STEP_CREATED,
    ]
    player.receive("h1", Approval(False))
    assert player.open == ["step charge (s1)"]
    player.complete("s1")
    assert returned(player) == "disposed"
    player.check_every_prefix()


def test_a_payload_is_not_lost_with_a_cancelled_awaiter() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        hook = Approval.wait()
        try:
            async with asyncio.timeout(10):
                await hook
        except TimeoutError:
            return (await hook).by
        return "early"

    player = Player(renew)
    player.fire("w1")
    player.receive("h1", Approval(True, "ann"))
    assert returned(player) == "ann"
    player.check_every_prefix()


def test_get_conflict_answers_when_the_hook_is_recorded() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> list[Any]:
        free, taken = Approval.wait(), Approval.wait(token="taken")
        found = [await free.get_conflict(), await taken.get_conflict()]
        found.append(await free.get_conflict())
        try:
            await taken
        except HookConflictError as error:
            found.append(error.conflicting_run_id)
        return found

    player = Player(renew)
    assert returned(player) == [None, "wrun_other", None, "wrun_other"]
    player.check_every_prefix()


def test_a_conflict_reaches_whoever_waits_for_a_payload() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        await Approval.wait(token="taken")

    assert isinstance(raised(Player(renew)), HookConflictError)


def test_a_payload_that_does_not_fit_is_an_error_in_the_body() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        await Approval.wait()

    player = Player(renew)
    player.move(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(b'{"yes":"perhaps"}')))
    assert isinstance(raised(player), TypeValidationError)
