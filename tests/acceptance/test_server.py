"""The server dies in the middle of many runs, and comes back with all it had or with a little less."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import app
from tests.acceptance.kit import PATIENCE, Fleet, until
from tests.partition import read_partition
from tests.servers import start_test_server
from worker import Run
from world_redis.embedded import EmbeddedServer
from world_redis.events import EventType
from world_redis.liveness import check

RUNS = 200
LOST_BYTES = 100_000  # of the log's end: about a second of it


@pytest.fixture
def mortal() -> Iterator[EmbeddedServer]:
    """A server that writes every command to its append-only file at once."""
    with start_test_server(config={"appendfsync": "always", "aof-load-truncated": "yes"}) as running:
        yield running


@pytest.fixture
async def fleet(mortal: EmbeddedServer, namespace: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Fleet(mortal.url, namespace, tmp_path, lease=2) as running:
        yield running


async def start_all(fleet: Fleet) -> list[Run[str]]:
    for _ in range(2):
        await fleet.worker(concurrency=20)
    return await fleet.client.start_many(app.mixed, [(f"r{i}",) for i in range(RUNS)])


async def half_way(fleet: Fleet) -> None:
    """Wait until a good part of the steps has ended."""
    enough = RUNS * app.MIXED_STEPS // 3
    await until("a third of the steps", lambda: len(fleet.effects.all("", "end")) >= enough)


async def finish(fleet: Fleet, runs: list[Run[str]]) -> None:
    async def over() -> bool:
        statuses = await asyncio.gather(*(run.status() for run in runs))
        return all(status == "completed" for status in statuses)

    await until("all runs complete", over, within=2 * PATIENCE)
    for run in runs:
        completed = Counter(e.id for e in await fleet.events(run, EventType.STEP_COMPLETED))
        assert set(completed.values()) == {1} and len(completed) == app.MIXED_STEPS, run.run_id
    assert check(await read_partition(fleet.world, 0, logs=True, finished=True)) == []


def starts(fleet: Fleet) -> Counter[str]:
    return Counter(effect.what for effect in fleet.effects.all("", "start"))


@pytest.mark.slow
async def test_a_server_killed_in_the_middle_of_200_runs_costs_no_result_and_robs_no_owner(
    mortal: EmbeddedServer, fleet: Fleet
) -> None:
    runs = await start_all(fleet)
    await half_way(fleet)
    mortal.kill()
    await asyncio.to_thread(mortal.restart)
    await finish(fleet, runs)
    repeated = {what: times for what, times in starts(fleet).items() if times > 1}
    assert repeated == {}, "a step was taken from its living owner"


@pytest.mark.slow
async def test_a_server_away_for_longer_than_the_lease_robs_no_owner(
    mortal: EmbeddedServer, fleet: Fleet
) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.held_then_marks)
    await fleet.effects.started("a")
    mortal.kill()
    await asyncio.sleep(2.5)  # the absence itself
    await asyncio.to_thread(mortal.restart)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=15) == ["a", "b", "c"]
    assert len(fleet.effects.starts("a")) == 1


@pytest.mark.slow
async def test_a_server_frozen_for_longer_than_the_lease_robs_no_owner(
    mortal: EmbeddedServer, fleet: Fleet
) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.held_then_marks)
    await fleet.effects.started("a")
    os.kill(mortal.pid, signal.SIGSTOP)
    await asyncio.sleep(3.0)  # longer than the lease
    os.kill(mortal.pid, signal.SIGCONT)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=15) == ["a", "b", "c"]
    assert len(fleet.effects.starts("a")) == 1


@pytest.mark.slow
async def test_a_server_that_lost_the_end_of_its_log_repeats_no_step_but_those_it_forgot(
    mortal: EmbeddedServer, fleet: Fleet
) -> None:
    """All finish, no step whose end is on record runs again, and none runs beside itself."""
    runs = await start_all(fleet)
    await half_way(fleet)
    mortal.kill()
    assert cut_log(mortal.directory) > LOST_BYTES // 2
    for worker in fleet.workers:
        worker.signal(signal.SIGSTOP)  # so that what we read is what the server came back with
    await asyncio.to_thread(mortal.restart)
    ended = {
        f"r{i}-{int(event.id[1:]) - 1}"
        for i, run in enumerate(runs)
        if await is_there(run)
        for event in await fleet.events(run, EventType.STEP_COMPLETED)
    }
    before = starts(fleet)
    for worker in fleet.workers:
        worker.signal(signal.SIGCONT)
    await finish(fleet, [run for run in runs if await is_there(run)])

    after = starts(fleet)
    assert ended and [what for what in ended if after[what] > before[what]] == []
    assert [what for what in after if fleet.effects.most_at_once(what) > 1] == []
    assert max(after.values()) <= 2


async def is_there(run: Run[Any]) -> bool:
    return bool(await run.table() is not None)


def cut_log(directory: Path) -> int:
    """Cut the end of the append-only file at a command boundary, as a machine that lost power would; how
    many bytes are lost."""
    (log,) = directory.glob("appendonlydir/*.incr.aof")
    content = log.read_bytes()
    end = max(len(content) // 2, len(content) - LOST_BYTES)
    # EVALSHA effects are written as MULTI … EXEC; a transaction is lost whole.
    boundary = content.rindex(b"\r\n$4\r\nEXEC\r\n", 0, end) + len(b"\r\n$4\r\nEXEC\r\n")
    os.truncate(log, boundary)
    return len(content) - boundary
