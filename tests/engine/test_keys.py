"""The key a step gives to the systems it calls: its own, and the same in every attempt."""

from __future__ import annotations

from collections import defaultdict

from tests.engine.kit import LEASE, Cut, Stage
from worker import Workflows, get_step_metadata

wf = Workflows()
seen: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
"""(run id, argument) → the keys its attempts were given."""


@wf.step
async def charge(what: str) -> str:
    metadata = get_step_metadata()
    seen[metadata.run_id, what].append(metadata.idempotency_key)
    if metadata.attempt == 1:
        raise ValueError("once more")
    return what


@wf.workflow
async def twice() -> list[str]:
    return [await charge("a"), await charge("b")]


async def test_steps_of_one_name_in_two_runs_at_once_share_no_key_and_keep_theirs(redis_url: str) -> None:
    seen.clear()
    async with Stage(redis_url, wf) as stage:
        runs = [await stage.start(twice) for _ in range(2)]

        async def over() -> bool:
            return all([await stage.finished(run) for run in runs])

        doomed = stage.process(cut=Cut(4, answered=True))
        await doomed.work(over)
        await stage.clock.forward(int(LEASE * 1000) + 1)
        heir = stage.process()
        await heir.work(over)
        await heir.leave()
    assert len(seen) == 4, "two runs, two steps"
    keys = [set(given) for given in seen.values()]
    assert all(len(each) == 1 for each in keys), "the same in every attempt"
    assert all(len(given) >= 2 for given in seen.values())
    assert len(set().union(*keys)) == 4, "shared by nobody"
