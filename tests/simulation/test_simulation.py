"""Chaos with a seed. A failure prints the seed and what had happened; `python -m tests.simulation --seed N`
replays it with every step printed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import server_binary, start_test_server
from world_redis.scripts import ScriptCall

from .cast import wf
from .schedule import Broken, Schedule
from .store import PARTITION, Store

SEEDS = 1000
AT_ONCE = 2  # processes
_EACH = 50  # schedules of one process
# Schedules beyond the ordinary ones that once broke something.
REGRESSIONS = (
    101462,
    102044,
    203335,
    600792,
    803376,
    2355,
    4944,
    5220,
    7806,
    7816,
    8109,
    8357,
    8593,
    8846,
    9595,
)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    wf.resolve()
    with start_test_server() as server:
        yield Store(server.url)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, _EACH * AT_ONCE))
def test_whatever_happens_every_run_ends_as_it_should_and_leaves_nothing(first: int) -> None:
    firsts = [first + _EACH * n for n in range(AT_ONCE)]
    _check([_simulation(f"{each}:{each + _EACH}") for each in firsts])


def test_what_once_broke_something_does_not_break_it_again() -> None:
    _check([_simulation(",".join(map(str, REGRESSIONS)))])


def _simulation(seeds: str) -> subprocess.Popen[str]:
    """A process of its own: the order of sets of text is part of a schedule, so its seed is pinned there."""
    server_binary()  # skips the test where there is none
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", "--seeds", seeds],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _check(running: list[subprocess.Popen[str]]) -> None:
    said = [process.communicate()[0] for process in running]
    for process, text in zip(running, said, strict=True):
        assert process.returncode == 0, text
        assert "broken: none" in text, text


@pytest.mark.parametrize("seed", [3, 14, 159, 265])
def test_the_same_seed_is_the_same_schedule(store: Store, seed: int) -> None:
    traces = []
    for _ in range(2):
        schedule = Schedule(seed, store)
        schedule.run()
        traces.append(schedule.trace)
    assert traces[0] == traces[1]


def _run_all(store: Store, seeds: range) -> None:
    for seed in seeds:
        Schedule(seed, store).run()


class ForgetfulStore(Store):
    """Loses every wake that a step's end sends."""

    def run(self, call: ScriptCall, *, resent: bool = False) -> list[Any]:
        reply = super().run(call, resent=resent)
        if call.script == "append" and call.args[6]:
            for run in call.runs:
                _, _, _, out = self.keys.run(PARTITION, run)
                wake: Any = self.client.hget(out, "wake")
                if wake is not None:
                    self.client.hdel(self.keys.partition(PARTITION)[1], wake, wake + b":p")
        return reply


def test_a_store_that_loses_wakes_is_found_out() -> None:
    wf.resolve()
    with start_test_server() as server:
        store = ForgetfulStore(server.url)
        with pytest.raises(Broken, match=r"liveness|place|out"):
            _run_all(store, range(50))
