"""Workers die, freeze and come back at random while many runs of several kinds go on. The seed is printed."""

import asyncio
import random
import signal
from collections import Counter
from typing import Any

import pytest

from tests.acceptance import app
from tests.acceptance.kit import Fleet, until
from tests.partition import read_partition
from worker import Run
from world_redis.events import EventType
from world_redis.liveness import check

RUNS = 150
WORKERS = 3
BLOWS = 12  # workers killed or frozen


async def strike(fleet: Fleet, chance: random.Random) -> None:
    """Kill a worker and start another, or freeze one past its lease."""
    victim = chance.choice([worker for worker in fleet.workers if worker.alive])
    if chance.random() < 0.7:
        victim.kill()
        await fleet.worker(concurrency=5)
    else:
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(1.2)  # the absence itself
        victim.signal(signal.SIGCONT)


async def send(fleet: Fleet, run: Run[list[str]], words: list[str]) -> None:
    """Every word three times, as a client does that got no answer."""
    token = await fleet.hook_token(run)
    for word in words:
        for _ in range(3):
            await fleet.client.resume(token, app.Go(word), idempotency_key=word)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_run_finishes_with_every_result_once_while_workers_die_and_freeze(
    fleet: Fleet, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(WORKERS):
        await fleet.worker(concurrency=5)
    mixed = await fleet.client.start_many(app.mixed, [(f"r{i}",) for i in range(RUNS)])
    families = [await fleet.start(app.parent_of_marks) for _ in range(5)]
    listeners = [await fleet.start(app.collects) for _ in range(5)]
    words = [f"w{i}" for i in range(8)] + ["stop"]
    sending = [asyncio.create_task(send(fleet, run, words)) for run in listeners]
    for _ in range(BLOWS):
        await strike(fleet, chance)
    await asyncio.gather(*sending)

    runs: list[Run[Any]] = [*mixed, *families, *listeners]

    async def over() -> bool:
        return all([await run.status() == "completed" for run in runs])

    await until(f"every run completes (seed {seed})", over, within=30)
    assert [await run.return_value() for run in mixed] == [f"r{i}" for i in range(RUNS)]
    assert [await run.return_value() for run in families] == [["x", "y"]] * 5
    assert [await run.return_value() for run in listeners] == [words[:-1]] * 5
    for run in runs:
        ends = Counter(e.id for e in await fleet.events(run, EventType.STEP_COMPLETED))
        assert set(ends.values()) == {1}, run.run_id
    assert check(await read_partition(fleet.world, 0, logs=True, finished=True)) == []
