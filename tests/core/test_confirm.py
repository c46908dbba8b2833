"""A body whose bet came true: told in one go, it is where the events one by one would have taken it."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
from typing import Any

import pytest

from tests.core.player import Player, create_of
from worker.runtime.body import Body
from worker.sdk.calls import start_child
from worker.sdk.registry import Workflows
from world_redis.events import Event, EventType, Position

pytestmark = pytest.mark.usefixtures("no_body_is_left")

wf = Workflows()


@wf.step
async def work(number: int) -> int: ...


@wf.step(cancellable=True)
async def stoppable() -> int: ...


@wf.workflow
async def child() -> int: ...


@wf.workflow
async def in_a_row() -> int:
    total = 0
    for number in range(4):
        total += await work(number)
    return total


@wf.workflow
async def side_by_side() -> list[int]:
    first = await asyncio.gather(work(1), work(2), work(3))
    return [*first, *await asyncio.gather(*(work(number) for number in first))]


@wf.workflow
async def with_calls_that_are_dropped() -> int:
    """`s3` is cancelled before it is recorded: it is void."""
    await work(1)
    late = asyncio.ensure_future(work(2))
    await asyncio.sleep(0)
    dropped = asyncio.ensure_future(work(3))
    await asyncio.sleep(0)
    dropped.cancel()
    total = await late
    await stoppable()
    return total + await work(4)


@wf.workflow
async def with_a_child() -> int:
    await work(1)
    start_child(child)
    return await work(2) + await child()


WORKFLOWS = [in_a_row, side_by_side, with_calls_that_are_dropped, with_a_child]


def inside(body: Body) -> dict[str, Any]:
    """All that the next event meets."""
    cursor = body._cursor
    return {
        "seen": cursor.seen,
        "fresh": list(cursor.fresh),
        "issued": [call.id for call in cursor._issued if call.id in cursor.fresh],
        "creates": list(cursor._creates),
        "recorded": cursor._recorded,
        "ids": cursor._ids,
        "last": cursor._last_id,
        "drifts": cursor.drifts,
        "packed": [getattr(call, "packed", b"") for call in body.open.values()],
        "decisive": list(body._decisive),
        "ahead": list(body._ahead),
        "over": body._over,
        "position": body.position,
        "problem": body.problem,
        "misled": body.misled,
        "open": list(body.open),
        "waits": body.waiting_for(),
    }


class Twins:
    """Two bodies on one log: one learns it event by event, the other is told that what it bet on is there."""

    def __init__(self, workflow: Any) -> None:
        self.player = Player(workflow)
        self.told, self.learning = self.player.replay(), self.player.replay()

    @property
    def next_id(self) -> str | None:
        """Of an open step or child."""
        return next((id for id in self.told.open if id[0] == "s"), None)

    def end(self, id: str) -> list[Event]:
        """It ends, and what the bodies ask for then is written behind it."""
        end = self.player.write(EventType.STEP_COMPLETED, id, b"1")
        written = [end]
        for body in (self.told, self.learning):
            body.advance([end._replace(slot=0, mark=b"")])
        for call in self.told.fresh:
            written.append(self.player.write(*create_of(call)))
            written.append(self.player.write(EventType.STEP_STARTED, call.id))
        return written

    def confirm(self, written: list[Event]) -> bool:
        created = [event.id for event in written if event.type is EventType.STEP_CREATED]
        end = written[0]
        position = Position(self.told.position.decided + 1, end.slot, end.mark)
        return self.told.confirm(1, created, written[-1].slot, position)

    def learn(self, written: list[Event]) -> None:
        self.learning.learn(written)
        self.learning.run()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name.rpartition(".")[2])
def test_what_is_told_in_one_go_is_what_is_learned_one_by_one(workflow: Any) -> None:
    twins, ends = Twins(workflow), 0
    while twins.told.outcome is None:
        id = twins.next_id
        assert id is not None
        written = twins.end(id)
        assert twins.confirm(written)
        twins.learn(written)
        assert inside(twins.told) == inside(twins.learning)
        ends += 1
    assert twins.told.outcome == twins.learning.outcome
    assert ends >= 4


def test_a_first_transition_is_told_too() -> None:
    player = Player(in_a_row)
    told, learning = player.build(), player.build()
    for body in (told, learning):
        body.learn(player.log[:2])
        body.run()
    rest = player.log[2:]
    assert told.confirm(0, ["s1"], rest[-1].slot, told.position)
    learning.learn(rest)
    learning.run()
    assert inside(told) == inside(learning)


def moved(twins: Twins, written: list[Event]) -> tuple[int, list[str], int, Position]:
    """What confirms the bet of `twins`, as `Body.confirm` takes it."""
    created = [event.id for event in written if event.type is EventType.STEP_CREATED]
    position = Position(twins.told.position.decided + 1, written[0].slot, written[0].mark)
    return 1, created, written[-1].slot, position


@pytest.mark.parametrize(
    "otherwise",
    [
        lambda ends, created, head, at: (ends + 1, created, head, at),
        lambda ends, created, head, at: (0, created, head, at._replace(decided=at.decided - 1)),
        lambda ends, created, head, at: (ends, created, head, at._replace(decided=at.decided + 1)),
        lambda ends, created, head, at: (ends, created[::-1], head, at),
        lambda ends, created, head, at: (ends, created[1:], head, at),
        lambda ends, created, head, at: (ends, [*created, "s99"], head, at),
    ],
    ids=["more ends", "no end", "another end too", "another order", "one left out", "one too many"],
)
def test_what_is_not_the_bet_is_not_told_and_changes_nothing(otherwise: Any) -> None:
    twins = Twins(side_by_side)
    for id in ("s1", "s2"):
        written = twins.end(id)
        assert twins.confirm(written)
        twins.learn(written)
    written = twins.end("s3")
    before = inside(twins.told)
    assert not twins.told.confirm(*otherwise(*moved(twins, written)))
    assert inside(twins.told) == before
    assert twins.confirm(written)


def test_a_body_that_has_not_seen_all_there_was_before_is_not_told() -> None:
    twins = Twins(in_a_row)
    written = twins.end("s1")
    twins.told._cursor.learn(written[1])  # the create, not matched yet
    before = inside(twins.told)
    assert not twins.confirm(written)
    assert inside(twins.told) == before


@pytest.mark.parametrize("other", [{"slot": 3}, {"mark": b"another"}], ids=["slot", "mark"])
def test_a_position_of_another_log_is_not_taken_over(other: dict[str, Any]) -> None:
    """Creates are written whatever the position. Their writer must not come to stand at one that it has not
    been led to: the next transition that bets on it would be accepted there."""
    twins = Twins(side_by_side)
    written = twins.end("s1")
    assert twins.confirm(written)
    before, position = inside(twins.told), twins.told.position
    head = written[-1].slot
    assert not twins.told.confirm(0, [], head, position._replace(**other))
    assert inside(twins.told) == before
    assert twins.told.confirm(0, [], head, position)
