"""A body does the same every time: live or replayed, in every process, from every prefix."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.core.long_body import everything, play, story
from tests.core.player import Player
from worker.core.calls import Cancelled, Returned
from worker.sdk.registry import Workflows
from world_redis.events import Event

pytestmark = pytest.mark.usefixtures("no_body_is_left")

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_prefix_of_a_log_replays_to_the_same_calls(seed: int) -> None:
    player = play(seed)
    assert isinstance(player.body.outcome, Returned)
    assert len(player.issued[player.body]) >= 30
    player.check_every_prefix()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_live_body_and_one_replayed_at_every_move_write_the_same_log(seed: int) -> None:
    live, cold = play(seed), play(seed, live=False)
    assert live.log == cold.log
    assert live.body.outcome == cold.body.outcome


@pytest.mark.parametrize("seed", range(25))
def test_a_cancelled_run_replays_to_the_same_calls(seed: int) -> None:
    player = play(seed, cancel=True)
    assert isinstance(player.body.outcome, Cancelled | Returned)
    player.check_every_prefix()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_may_arrive_in_any_pieces(seed: int) -> None:
    player = play(seed)
    for size in (1, 2, 3, 7):
        body = player.build()
        body.learn(player.log[:6])  # as far as the record of the first patch
        for start in range(6, len(player.log), size):
            body.learn(player.log[start : start + size])
            if start % 3 == 0:
                body.run()
            assert body.problem is None
        body.run()
        assert body.outcome == player.body.outcome
        body.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_body_may_run_ahead_of_every_decisive_event(seed: int) -> None:
    player = play(seed)
    body = player.build()
    body.learn(player.log[:2])
    body.run()
    for event in player.log[2:]:
        if event.decisive:
            body.advance([event._replace(slot=0, mark=b"")])
        body.learn([event])
        assert body.problem is None
        assert not body.misled
    assert body.outcome == player.body.outcome
    assert body.position == player.replay().position


def test_creates_may_stand_late_in_the_log() -> None:
    """A second writer may record a call after an event that came meanwhile."""
    for seed in SEEDS:
        player = play(seed)
        moved = later(player.log)
        body = player.build()
        body.learn(moved)
        body.run()
        assert body.problem is None
        assert body.outcome == player.body.outcome


def later(log: list[Event]) -> list[Event]:
    """Swap every create with a foreign decisive event that follows it directly."""
    events = list(log)
    for place in range(2, len(events) - 1):
        one, two = events[place], events[place + 1]
        is_create = one.type.value.endswith("_created") and not one.decisive
        if is_create and two.decisive and one.id != two.id:
            events[place], events[place + 1] = two, one
    return [event._replace(slot=slot) for slot, event in enumerate(events, 1)]


@pytest.mark.slow
def test_every_process_asks_for_the_same_whatever_its_hash_seed() -> None:
    def run(hash_seed: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.core.long_body", "0", "6"],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )

    outputs = [process.communicate(timeout=60)[0] for process in map(run, ("0", "1", "4242"))]
    assert outputs[0].splitlines() == [story(play(seed)) for seed in range(6)]
    assert outputs[1:] == outputs[:1] * 2


def test_a_thousand_steps_replay_from_cold_in_a_moment() -> None:
    wf = Workflows()

    @wf.step
    async def add(a: int, b: int) -> int: ...

    @wf.workflow
    async def total(n: int) -> int:
        value = 0
        for each in range(n):
            value = await add(value, each)
        return value

    player = Player(total, 1000)
    for number in range(1000):
        player.complete(f"s{number + 1}", number)
    start = time.perf_counter()
    body = player.replay()
    took = time.perf_counter() - start
    assert isinstance(body.outcome, Returned)
    # About 0.03 s on an idle machine; the bound only catches what is not linear.
    assert took < 1


def test_the_long_body_is_registered_by_its_qualified_name() -> None:
    assert everything.name == "everything"
