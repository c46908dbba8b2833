"""Who runs a step, what happens when its owner dies, pauses or loses its message."""

import signal
import time

from tests.acceptance import app
from tests.acceptance.kit import LEASE, Fleet, until
from world_redis.events import EventType
from world_redis.messages import Held


async def test_a_hook_resumed_beside_an_inline_step_goes_on_at_once_and_the_step_runs_once(
    fleet: Fleet,
) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.hook_beside_step)
    (slow,) = await fleet.effects.started("slow")
    token = await fleet.hook_token(run)
    resumed = time.monotonic()
    await fleet.client.resume(token, app.Go("go"))
    (go,) = await fleet.effects.seen("go")
    assert go.at < slow.at + 1.0, "the payload waited for the step"
    assert go.at - resumed < 0.5
    assert await run.return_value(timeout=10) == "slow"
    assert len(fleet.effects.starts("slow")) == 1


async def test_without_inline_ownership_the_same_program_runs_the_step_twice(fleet: Fleet) -> None:
    await fleet.worker(concurrency=1, inline_ownership=0)
    run = await fleet.start(app.hook_beside_held_step)
    await fleet.effects.started("slow")
    await fleet.worker(inline_ownership=0)
    await fleet.client.resume(await fleet.hook_token(run), app.Go("go"))
    await fleet.effects.started("slow", 2)
    fleet.effects.open_gate("slow")
    assert await run.return_value(timeout=10) == "slow"
    assert len(fleet.effects.starts("slow")) == 2
    assert len(await fleet.events(run, EventType.STEP_COMPLETED)) == 2


async def test_a_killed_owners_step_is_recovered_under_the_same_message_and_the_next_number(
    fleet: Fleet,
) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.held_then_marks)
    (first,) = await fleet.effects.started("a")
    fleet.by_pid(first.pid).kill()
    _, second = await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == ["a", "b", "c"]

    assert second.pid != first.pid
    assert len(fleet.effects.starts("a")) == 2
    owners = [e.extra.split(":") for e in await fleet.events(run, EventType.STEP_STARTED) if e.id == "s1"]
    assert [owner[0] for owner in owners] == [owners[0][0]] * 2, "another message"
    assert [owner[1] for owner in owners] == ["1", "2"]
    assert fleet.by_pid(second.pid).said("owned recovery")


async def test_a_queued_steps_killed_worker_loses_it_to_another(fleet: Fleet) -> None:
    keeper = await fleet.worker(queues="default")
    sides = [await fleet.worker(queues="side") for _ in range(2)]
    run = await fleet.start(app.held_on_the_side)
    (first,) = await fleet.effects.started("a")
    fleet.by_pid(first.pid).kill()
    _, second = await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    assert {first.pid, second.pid} == {side.pid for side in sides}
    assert keeper.alive


async def test_a_run_whose_message_is_lost_comes_home_within_one_lease_of_its_workers_death(
    fleet: Fleet,
) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.one_held_step)
    (first,) = await fleet.effects.started("a")
    owner = (await fleet.running(run)).owner
    assert owner is not None
    owner_worker = fleet.by_pid(first.pid)
    owner_worker.signal(signal.SIGSTOP)  # it must not notice the loss before it dies
    await fleet.lose(owner)
    owner_worker.kill()
    died = time.monotonic()
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    assert time.monotonic() - died < LEASE + 1.0
    assert len(fleet.effects.starts("a")) == 2


async def test_a_message_lost_while_its_worker_lives_costs_no_result(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.one_held_step)
    await fleet.effects.started("a")
    owner = (await fleet.running(run)).owner
    assert owner is not None
    await fleet.lose(owner)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    assert len(await fleet.events(run, EventType.STEP_COMPLETED)) == 1
    assert len(fleet.effects.starts("a")) <= 2


async def test_a_worker_paused_past_its_lease_is_superseded_and_its_steps_end_once(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.two_held_then_mark)
    first, _ = await fleet.effects.started("a") + await fleet.effects.started("b")
    paused = fleet.by_pid(first.pid)
    paused.signal(signal.SIGSTOP)
    for name in "ab":
        assert (await fleet.effects.started(name, 2))[1].pid != paused.pid
    fleet.effects.open_gate("a")
    fleet.effects.open_gate("b")
    paused.signal(signal.SIGCONT)
    assert await run.return_value(timeout=10) == ["a", "b", "c"]

    assert len(await fleet.events(run, EventType.STEP_COMPLETED)) == 3
    assert len(fleet.effects.all("c")) == 1
    await until("the paused worker is told", lambda: paused.said("superseded"))
    assert [len(fleet.effects.starts(name)) for name in "ab"] == [2, 2]


async def test_a_deadline_that_lapses_falsely_robs_no_living_owner(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.held_then_marks)
    await fleet.effects.started("a")
    owner = (await fleet.running(run)).owner
    assert owner is not None
    before, lapsed = await fleet.delivery(owner), time.time()
    await fleet.lapse(owner)
    await until("its holder renews it", lambda: _renewed(fleet, owner, after=lapsed))
    after = await fleet.delivery(owner)
    assert (after.number, after.holder) == (before.number, before.holder)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == ["a", "b", "c"]
    assert [len(fleet.effects.all(name)) for name in "abc"] == [2, 1, 1], "a has a start and an end"
    assert len(await fleet.events(run, EventType.STEP_STARTED)) == 3
    assert not any(worker.said("redelivered") for worker in fleet.workers)


async def test_a_clock_that_jumps_runs_no_step_twice(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    runs = [await fleet.start(app.held_then_marks) for _ in range(4)]
    await fleet.effects.started("a", 4)
    owners = [owner for run in runs if (owner := (await fleet.running(run)).owner) is not None]
    jumped = time.time() + 3600
    await fleet.set_clock(jumped)

    async def all_renewed() -> bool:
        return all([await _renewed(fleet, owner, after=jumped) for owner in owners])

    await until("their holders renew them", all_renewed)
    fleet.effects.open_gate("a")
    for run in runs:
        assert await run.return_value(timeout=10) == ["a", "b", "c"]
        assert len(await fleet.events(run, EventType.STEP_STARTED)) == 3
    assert len(fleet.effects.starts("a")) == 4
    assert not any(worker.said("redelivered") for worker in fleet.workers)


async def _renewed(fleet: Fleet, owner: Held, *, after: float) -> bool:
    return not (await fleet.delivery(owner)).doubted and await fleet.deadline(owner) > after


async def test_a_redelivery_to_the_worker_that_holds_the_run_starts_nothing(fleet: Fleet) -> None:
    await fleet.worker()
    run = await fleet.start(app.held_then_marks)
    await fleet.effects.started("a")
    owner = (await fleet.running(run)).owner
    assert owner is not None

    async def redelivered() -> bool:
        if not fleet.workers[0].said("redelivered"):
            await fleet.rob(owner)
        return fleet.workers[0].said("redelivered")

    await until("the redelivery", redelivered)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == ["a", "b", "c"]
    assert len(fleet.effects.starts("a")) == 1
    assert len(await fleet.events(run, EventType.STEP_STARTED)) == 3


async def test_a_worker_robbed_while_it_lives_stops_and_what_follows_runs_once(fleet: Fleet) -> None:
    """As after a whole lease without a renewal: the code of the first one may run until it hears of it."""
    first = await fleet.worker()
    run = await fleet.start(app.held_then_marks)
    await fleet.effects.started("a")
    second = await fleet.worker()
    owner = (await fleet.running(run)).owner
    assert owner is not None

    async def taken_by_the_second() -> bool:
        holder = (await fleet.delivery(owner)).holder
        if f"-{second.pid}-" not in holder:
            await fleet.rob(owner)
        return f"-{second.pid}-" in holder

    await until("the second worker takes the message", taken_by_the_second)
    await until("the first one stops", lambda: fleet.effects.all("a", "stopped"), within=LEASE)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == ["a", "b", "c"]
    assert [e.pid for e in fleet.effects.all("a", "stopped")] == [first.pid]
    assert [e.pid for e in fleet.effects.all("a", "end")] == [second.pid]
    assert [len(fleet.effects.all(name)) for name in "bc"] == [1, 1]
    assert len(await fleet.events(run, EventType.STEP_COMPLETED)) == 3


async def test_steps_and_delays_longer_than_the_lease_run_once(fleet: Fleet) -> None:
    for _ in range(2):
        await fleet.worker()
    run = await fleet.start(app.longer_than_the_lease)
    assert await run.return_value(timeout=15) == "after"
    assert len(fleet.effects.starts("slow")) == 1
    assert len(fleet.effects.all("after")) == 1
    assert len(await fleet.events(run, EventType.STEP_STARTED)) == 2
