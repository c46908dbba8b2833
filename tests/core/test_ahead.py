"""A body ahead of its log, and where it stands."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

from typing import Any

import pytest

from tests.core.player import Approval, Player, create_of, returned
from worker.core.records import HookReceived, pack
from worker.sdk.calls import (
    time_ns,
)
from worker.sdk.errors import (
    InternalError,
)
from worker.sdk.registry import Workflows
from world_redis.events import START, EventType, Position

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def two_steps() -> Any:
    wf = Workflows()

    @wf.step
    async def one() -> int: ...

    @wf.workflow
    async def renew() -> list[int]:
        hook = Approval.wait()
        first = await one()
        second = await one()
        return [first, second, time_ns(), int((await hook).yes)]

    return renew


def test_a_body_advanced_ahead_of_the_log_is_confirmed_by_it() -> None:
    player = Player(two_steps())
    body, before = player.body, player.body.position
    event = player.write(EventType.STEP_COMPLETED, "s1", b"1")
    body.advance([event._replace(slot=0, mark=b"")])
    assert [call.id for call in body.fresh] == ["s2"]
    assert body.position == before
    player.write(*create_of(body.fresh[0]))
    body.learn(player.log[body.seen :])
    body.run()
    assert body.position == Position(before.decided + 1, event.slot, event.mark)
    assert not body.misled
    assert not body.fresh
    player.complete("s2", 2)
    player.receive("h1", Approval(True))
    assert returned(player)[:2] == [1, 2]
    player.check_every_prefix()


def test_another_event_first_misleads_the_body() -> None:
    player = Player(two_steps())
    body = player.body
    other = player.write(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(b'{"yes":true}')))
    event = player.write(EventType.STEP_COMPLETED, "s1", b"1")
    body.advance([event._replace(slot=0)])
    body.learn([other, event])
    assert body.misled
    rebuilt = player.replay()
    assert rebuilt.position == Position(3, event.slot, event.mark)
    assert [call.id for call in rebuilt.fresh] == ["s2"]


def test_the_position_is_that_of_the_last_decisive_event_delivered() -> None:
    wf = Workflows()

    @wf.step
    async def one() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await one()
        await one()

    player = Player(renew)
    assert player.body.position == START
    player.complete("s1")
    last = player.log[-2]
    assert player.body.position == Position(1, last.slot, last.mark)


def test_a_finished_body_still_counts_what_it_no_longer_sees() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        return "done"

    player = Player(renew)
    player.cancel()
    assert returned(player) == "done"
    assert player.body.position.decided == 1


def test_events_are_learned_without_gaps_and_repeats_are_ignored() -> None:
    player = Player(two_steps())
    player.body.learn(player.log)
    with pytest.raises(InternalError):
        player.body.learn([player.log[-1]._replace(slot=len(player.log) + 2)])


def test_a_bet_confirmed_in_part_is_misled_by_what_comes_between() -> None:
    player = Player(two_steps())
    first = player.write(EventType.STEP_COMPLETED, "s1", b"1")
    body = player.body
    body.advance([first._replace(slot=0)])
    create = player.write(*create_of(body.fresh[0]))
    between = player.write(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(b'{"yes":true}')))
    second = player.write(EventType.STEP_COMPLETED, "s2", b"2")
    body.advance([second._replace(slot=0)])
    body.learn([first, create])
    assert not body.misled
    assert body.position.slot == first.slot
    body.learn([between])
    assert body.misled
    assert body.position.slot == first.slot
