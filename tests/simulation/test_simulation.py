"""Chaos with a seed. A failure prints the seed and what had happened; `python -m tests.simulation --seed N`
replays it with every step printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import start_test_server
from world_redis.scripts import ScriptCall

from .cast import wf
from .schedule import Broken, Schedule
from .store import PARTITION, Store

SEEDS = 320
_EACH = 20


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    wf.resolve()
    with start_test_server() as server:
        yield Store(server.url)


@pytest.mark.parametrize("first", range(0, SEEDS, _EACH))
def test_whatever_happens_every_run_ends_as_it_should_and_leaves_nothing(store: Store, first: int) -> None:
    _run_all(store, range(first, first + _EACH))


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
