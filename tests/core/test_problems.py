"""What keeps a body from going on is found by the driver and never raised into it."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import contextlib
from typing import Any

import pytest

from tests.core.player import Approval, Player
from worker.core.calls import (
    Deadlock,
    Divergence,
    Spinning,
    Stuck,
    Undecodable,
)
from worker.sdk.calls import (
    set_attributes,
    sleep,
)
from worker.sdk.registry import Workflows
from world_redis.events import EventType

pytestmark = pytest.mark.usefixtures("no_body_is_left")


async def _step() -> None: ...


def diverge(recorded: str, called: str) -> Any:
    wf = Workflows()
    wf.step(name="charge")(_step)
    wf.step(name="refund")(_step)

    @wf.workflow(name="part")
    async def part() -> None: ...

    async def make(kind: str) -> None:
        if kind == "wait":
            await sleep(1)
        elif kind == "hook":
            await Approval.wait()
        elif kind == "child":
            await part()
        elif kind == "attributes":
            await set_attributes({"a": "b"})
        elif kind != "nothing":
            await wf.steps[kind]()

    @wf.workflow
    async def renew(kind: str) -> None:
        try:
            await make(kind)
            await wf.steps["charge"]()
        except Exception:
            await sleep(99)

    player = Player(renew, recorded)
    other = Player(renew, called).build()
    other.learn(player.log)
    other.run()
    return other.problem


@pytest.mark.parametrize(
    ("recorded", "called", "says"),
    [
        ("charge", "refund", ("step charge (s1)", "step refund (s1)")),
        ("charge", "child", ("step charge (s1)", "child part (s1)")),
        ("child", "charge", ("child part (s1)", "step charge (s1)")),
        ("wait", "charge", ("wait (w1)", "step charge (s1)")),
        ("hook", "wait", ("hook (h1)", "wait (w1)")),
        ("attributes", "charge", ("attr (a1)", "step charge (s1)")),
        ("wait", "nothing", ("wait (w1)", "step charge (s1)")),
    ],
)
def test_a_divergence_names_what_is_recorded_and_what_was_called(
    recorded: str, called: str, says: tuple[str, str]
) -> None:
    problem = diverge(recorded, called)
    assert isinstance(problem, Divergence)
    assert (problem.recorded, problem.called) == says
    assert problem.slot == 3


def test_a_divergence_is_not_raised_into_the_body_and_says_where_it_waits() -> None:
    problem = diverge("charge", "refund")
    assert len(problem.waiting_for) == 1
    assert "test_problems.py" in problem.waiting_for[0]
    assert "waits for step refund (s1)" in problem.waiting_for[0]


def test_a_call_that_is_missing_at_the_end_is_a_divergence() -> None:
    wf = Workflows()
    wf.step(name="charge")(_step)

    @wf.workflow
    async def renew(often: int) -> None:
        for _ in range(often):
            await wf.steps["charge"]()

    player = Player(renew, 2)
    player.complete("s1")
    body = Player(renew, 1).build()
    body.learn(player.log)
    body.run()
    assert isinstance(body.problem, Divergence)
    assert body.problem.called == "nothing more"


def test_changed_arguments_are_noticed_and_the_recorded_answer_is_used() -> None:
    wf = Workflows()

    @wf.step(name="charge")
    async def charge(amount: int) -> str: ...

    @wf.workflow
    async def renew(amount: int) -> str:
        return await charge(amount)

    player = Player(renew, 1)
    player.complete("s1", "paid")
    body = Player(renew, 2).build()
    body.learn(player.log)
    body.run()
    assert body.problem is None
    assert body.outcome == player.body.outcome
    assert [(drift.id, drift.name) for drift in body.drifts] == [("s1", "charge")]


def test_a_result_that_cannot_be_read_any_more_is_a_problem_and_no_failure() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> int: ...

    @wf.workflow
    async def renew() -> None:
        try:
            await charge()
        except Exception:
            await charge()

    player = Player(renew)
    player.move(EventType.STEP_COMPLETED, "s1", b'"text"')
    assert isinstance(player.body.problem, Undecodable)
    assert player.body.outcome is None


def test_an_input_that_cannot_be_read_any_more_is_a_problem() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew(n: Any) -> None: ...

    other = Workflows()

    @other.workflow(name="renew")
    async def changed(n: int) -> None: ...

    player = Player(renew, "text")
    player.workflow = changed
    body = player.replay()
    assert isinstance(body.problem, Undecodable)
    assert body.problem.slot == 0


def test_a_quiet_body_with_nothing_open_is_a_deadlock() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await charge()
        await asyncio.Event().wait()

    player = Player(renew)
    player.complete("s1")
    assert isinstance(player.body.problem, Deadlock)
    assert "renew (test_problems.py" in player.body.problem.frames[0]


def test_a_dropped_call_does_not_keep_a_body_alive() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await charge()
        await asyncio.Event().wait()

    player = Player(renew)
    player.fire("w1")
    assert isinstance(player.body.problem, Deadlock)


def test_a_body_that_spins_is_stopped() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    player = Player(renew)
    assert isinstance(player.body.problem, Spinning)


@pytest.mark.parametrize("swallow", [False, True])
def test_a_body_that_does_not_come_to_rest_is_interrupted(swallow: bool) -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        count = 0
        while count < 10**12:
            try:
                count += 1
            except BaseException:
                if not swallow:
                    raise
                await asyncio.sleep(0)

    player = Player(renew, stuck_after=0.2)
    assert isinstance(player.body.problem, Stuck)
    assert any("test_problems.py" in frame for frame in player.body.problem.frames)
