"""What an operator reads off ``/metrics`` while runs are woken, crash and come home: real workers, scraped.

Each test forces one sequence. A worker told to drain takes nothing more and keeps what it runs: so a wake
meets, in another worker, steps that are owned elsewhere.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tests.acceptance import app, counted
from tests.acceptance.kit import Fleet, WorkerProcess, until
from tests.acceptance.metrics import Scrape, scrape
from worker import Run
from worker.core.records import StepCreated, pack
from worker.core.spec import SPEC_READS
from world_redis.events import START, EventType
from world_redis.ids import new_mark, new_run_id
from world_redis.log import Log
from world_redis.messages import (
    Delivery,
    Held,
    Kind,
    RunContext,
    RunMessage,
    StepMessage,
    pack_step_message,
)
from world_redis.queue import Queue
from world_redis.runs import Runs
from world_redis.transition import Decision, Send, Transition

APP = "tests.acceptance.counted:wf"


# --- helpers --------------------------------------------------------------------------------------


async def counts(worker: WorkerProcess, what: str, condition: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until the counts are so."""

    async def look() -> Scrape | None:
        seen = await scrape(worker)
        return seen if condition(seen) else None

    found = await until(what, look)
    assert found is not None
    return found


async def meets(worker: WorkerProcess, row: str, times: int) -> Scrape:
    """Scrape until its passes have met this row so often."""
    return await counts(worker, f"{times} times {row}", lambda s: rows(s).get(row) == times)


async def drain(worker: WorkerProcess) -> None:
    """It takes nothing more, and keeps what it runs until that ends."""
    worker.signal(signal.SIGTERM)
    await until("the worker drains", lambda: worker.said("draining"))


async def messages_of(fleet: Fleet) -> set[bytes]:
    """The ids of all messages there are."""
    ids = await fleet.world.command("HKEYS", fleet.keys.partition(0)[1])
    return {id for id in ids if not id.endswith(b":p")}


async def waiting(fleet: Fleet, run: Run[Any]) -> list[str]:
    """The keys under which messages of the run wait."""
    keys = await fleet.world.command("HKEYS", fleet.keys.run(0, run.run_id)[3])
    return sorted(key.decode() for key in keys)


async def look_again(fleet: Fleet, run: Run[Any]) -> None:
    """A wake that asks for a look at the steps, with nothing new in the log."""
    head = (await fleet.read(run)).head
    assert (await Runs(fleet.world).heal(run.run_id, head)).value == "ok"


async def taken_by_nobody(fleet: Fleet, queue: str = "default") -> Delivery:
    """A worker takes a message and dies before it does anything."""
    taken = await Queue(fleet.world, "ghost").take(0, [queue], runs=1, steps=1, empty=True)
    (delivery,) = taken.deliveries
    return delivery


def rows(seen: Scrape) -> dict[str, int]:
    return seen.by("dispatch_rows_total", "row")


# --- steps whose owner lives elsewhere ------------------------------------------------------------


async def test_passes_over_steps_owned_elsewhere_count_once_each_and_send_nothing(fleet: Fleet) -> None:
    owner = await fleet.worker(APP)
    run = await fleet.start(counted.three_held_and_a_hook)
    for name in "abc":
        await fleet.effects.started(name)
    token = await fleet.hook_token(run)
    await drain(owner)
    other = await fleet.worker(APP, live_runs=1000)  # whatever the environment says: its body rests here
    before = await messages_of(fleet)
    assert len(before) == 2 and "rescue" in await waiting(fleet, run), "one, and the owner's message"
    for passes in (1, 2, 3):
        await look_again(fleet, run)
        seen = await meets(other, "backstop", 3 * passes)
        assert seen("inline_backstop_wakes_armed_total") == passes, "0 or 1 for each pass"
        assert await messages_of(fleet) == before, "nothing more was sent"

    await fleet.client.resume(token, app.Go("go"))
    await fleet.effects.seen("go")
    for name in "abc":
        fleet.effects.open_gate(name)
    assert await run.return_value(timeout=10) == ["go", "a", "b", "c"]
    assert [len(fleet.effects.starts(name)) for name in "abc"] == [1, 1, 1]
    seen = await scrape(other)
    assert seen("inline_backstop_wakes_armed_total") == 3, "a payload for a body that knows is no look"
    assert rows(seen).keys() <= {"backstop", "inline"}
    for quiet in ("inline_owned_recoveries_total", "queue_backstop_wakes_armed_total", "rescues_fired_total"):
        assert seen(quiet) == 0, quiet


async def test_passes_over_steps_in_the_queue_count_once_each_and_send_nothing(fleet: Fleet) -> None:
    home = await fleet.worker(APP)
    side = await fleet.worker(APP, queues="side")
    run = await fleet.start(counted.three_held_on_the_side)
    for name in "abc":
        await fleet.effects.started(name)
    await counts(home, "the run rests", lambda s: s("in_flight", kind="run") == 0)
    before = await messages_of(fleet)
    assert await waiting(fleet, run) == ["rescue", "s1", "s2", "s3"], "one rescue, whoever armed it"
    for passes in (1, 2, 3):
        await look_again(fleet, run)
        seen = await meets(home, "queue-backstop", 3 * passes)
        assert seen("queue_backstop_wakes_armed_total") == passes
        assert await messages_of(fleet) == before
    assert (await scrape(home))("inline_backstop_wakes_armed_total") == 0
    for name in "abc":
        fleet.effects.open_gate(name)
    assert await run.return_value(timeout=10) == ["a", "b", "c"]
    worked = await scrape(side)
    assert worked.by("prologues_total", "prologue") == {"run_context": 3}
    assert worked("round_trips_total", script="run_read") == 0, "nothing is read before the claim"
    assert worked("round_trips_total", script="step_claim") == 1, (
        "one take brought them, one call claims them"
    )


async def test_with_the_queue_backstop_off_a_step_in_the_queue_is_asked_for_at_once(fleet: Fleet) -> None:
    """Nothing is armed for it. The key of its message is taken until that is settled, so while its worker
    holds it, asking sends nothing."""
    home = await fleet.worker(APP, queue_owned_backstop=0)
    await fleet.worker(APP, queues="side", queue_owned_backstop=0)
    run = await fleet.start(app.held_on_the_side)
    (first,) = await fleet.effects.started("a")
    await counts(home, "the run rests", lambda s: s("in_flight", kind="run") == 0)
    before = await messages_of(fleet)
    await look_again(fleet, run)
    seen = await meets(home, "queue-expired", 1)
    assert seen("queue_backstop_wakes_armed_total") == 0
    assert await messages_of(fleet) == before

    message = (await fleet.running(run)).owner
    assert message is not None
    fleet.by_pid(first.pid).kill()
    await _lose_from(fleet, "side", run, message)
    await fleet.worker(APP, queues="side", queue_owned_backstop=0)
    await look_again(fleet, run)
    await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"


async def test_what_waits_is_looked_at_and_left_alone(fleet: Fleet) -> None:
    """A child, a queued step nobody serves, a retry before its time, a step nobody waits for."""
    home = await fleet.worker(APP)
    side = await fleet.worker(APP, queues="side")
    run = await fleet.start(counted.waits_for_others)
    await fleet.effects.started("a")
    await counts(side, "the retry is recorded", lambda s: s("steps_total", status="retrying") == 1)

    async def given_up() -> bool:
        table = (await fleet.read(run)).table
        return any(step.state == "withdrawn" for step in table.steps) if table is not None else False

    await until("the step nobody waits for is withdrawn", given_up)
    await counts(home, "the run rests", lambda s: s("in_flight", kind="run") == 1)
    before = await messages_of(fleet)
    earlier = rows(await scrape(home))
    await look_again(fleet, run)
    waiting = ("child", "created", "retrying")
    seen = await counts(home, "a pass", lambda s: all(rows(s).get(r, 0) > earlier.get(r, 0) for r in waiting))
    assert await messages_of(fleet) == before
    assert seen("inline_backstop_wakes_armed_total") == seen("queue_backstop_wakes_armed_total") == 0
    assert len(fleet.effects.starts("a")) == 1 and fleet.effects.all("b") == fleet.effects.all("c") == []
    await fleet.client.get_run(run.run_id).terminate()
    fleet.effects.open_gate("a")


async def test_a_wake_in_the_process_that_runs_the_step_joins_it(fleet: Fleet) -> None:
    home = await fleet.worker()
    run = await fleet.start(app.one_held_step)
    await fleet.effects.started("a")
    before = await messages_of(fleet)
    await counts(home, "the first pass", lambda s: s("transitions_total", answer="ok") == 1)
    await look_again(fleet, run)
    seen = await counts(home, "the wake is settled", lambda s: s("transitions_total", answer="ok") == 2)
    seen = await counts(home, "the look at the step", lambda s: rows(s).get("in-flight-here") == 1)
    assert await messages_of(fleet) == before
    assert seen("inline_backstop_wakes_armed_total") == seen("inline_owned_recoveries_total") == 0
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    assert len(fleet.effects.starts("a")) == 1


# --- owners that die ------------------------------------------------------------------------------


async def test_a_dead_owners_steps_are_counted_as_recovered_each(fleet: Fleet) -> None:
    owner = await fleet.worker(APP)
    run = await fleet.start(counted.three_held_and_a_hook)
    for name in "abc":
        await fleet.effects.started(name)
    await fleet.hook_token(run)
    heir = await fleet.worker(APP)
    owner.kill()
    seen = await counts(heir, "three recoveries", lambda s: s("inline_owned_recoveries_total") == 3)
    assert seen.by("redeliveries_total", "kind") == {"run": 1}
    assert rows(seen)["owned-recovery"] == 3
    assert seen("rescues_fired_total") == 0, "its message brought it home"
    assert heir.said("owned recovery") and heir.said("redelivered")
    await run.terminate()
    for name in "abc":
        fleet.effects.open_gate(name)


async def test_a_dead_owner_without_a_message_is_found_by_the_rescue(fleet: Fleet) -> None:
    owner = await fleet.worker()
    run = await fleet.start(app.one_held_step)
    await fleet.effects.started("a")
    message = (await fleet.running(run)).owner
    assert message is not None
    heir = await fleet.worker()
    owner.kill()
    await fleet.lose(message)
    await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    seen = await scrape(heir)
    assert seen("rescues_fired_total") >= 1 and heir.said("rescue fired")
    assert rows(seen)["lease-expired"] == 1
    assert seen("inline_owned_recoveries_total") == 0
    assert seen.by("prologues_total", "prologue") == {"run_context": 1}, "it came back as a step message"
    assert len(await fleet.events(run, EventType.STEP_STARTED)) == 2


async def test_a_dead_queue_worker_without_a_message_falls_through_to_a_step_message(fleet: Fleet) -> None:
    home = await fleet.worker()
    first = await fleet.worker(queues="side")
    run = await fleet.start(app.held_on_the_side)
    await fleet.effects.started("a")
    message = (await fleet.running(run)).owner
    assert message is not None
    second = await fleet.worker(queues="side")
    first.kill()
    await _lose_from(fleet, "side", run, message)
    await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    seen = await scrape(home)
    assert seen("rescues_fired_total") >= 1
    assert rows(seen)["queue-expired"] == 1
    assert (await scrape(second)).by("redeliveries_total", "kind") == {}, "a new message"


async def _lose_from(fleet: Fleet, queue: str, run: Run[Any], message: Held) -> None:
    """A queued step's message vanishes, with all that knows of it."""
    await fleet.world.command("ZREM", fleet.keys.queue(0, queue)[2], message.message_id)
    await fleet.world.command("HDEL", fleet.keys.run(0, run.run_id)[3], "s1")
    messages = fleet.keys.partition(0)[1]
    await fleet.world.command("HDEL", messages, message.message_id, f"{message.message_id}:p")


async def test_a_queued_steps_redelivery_is_counted_by_who_takes_it(fleet: Fleet) -> None:
    home = await fleet.worker()
    first = await fleet.worker(queues="side")
    run = await fleet.start(app.held_on_the_side)
    await fleet.effects.started("a")
    second = await fleet.worker(queues="side")
    first.kill()
    await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    assert (await scrape(second)).by("redeliveries_total", "kind") == {"step": 1}
    assert (await scrape(home))("redeliveries_total") == 0
    assert len(fleet.effects.starts("a")) == 2


async def test_a_worker_that_slept_past_its_lease_counts_that_it_was_superseded(fleet: Fleet) -> None:
    workers = [await fleet.worker() for _ in range(2)]
    run = await fleet.start(app.held_then_marks)
    (first,) = await fleet.effects.started("a")
    sleeper = fleet.by_pid(first.pid)
    (other,) = (worker for worker in workers if worker is not sleeper)
    sleeper.signal(signal.SIGSTOP)
    await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    sleeper.signal(signal.SIGCONT)
    assert await run.return_value(timeout=10) == ["a", "b", "c"]
    await counts(sleeper, "superseded", lambda s: s("superseded_total") >= 1)
    seen = await scrape(other)
    assert (seen("superseded_total"), seen("inline_owned_recoveries_total")) == (0, 1)
    assert all([(await scrape(worker))("unsafe_settles_total") == 0 for worker in workers])


# --- runs that are over ---------------------------------------------------------------------------


async def test_a_wake_on_a_finished_run_costs_no_send_and_no_body(fleet: Fleet) -> None:
    run = await fleet.start(app.one_held_step)
    await taken_by_nobody(fleet)
    await run.terminate()
    worker = await fleet.worker()
    seen = await counts(worker, "the wake comes", lambda s: s("redeliveries_total", kind="run") == 1)
    seen = await counts(worker, "and goes", lambda s: s("in_flight", kind="run") == 0)
    assert await fleet.world.command("HLEN", fleet.keys.partition(0)[1]) == 0, "settled, and nothing sent"
    assert rows(seen) == {}
    assert (seen("replays_total"), seen("steps_total"), seen("runs_total")) == (0, 0, 0)
    assert [e.type.value for e in await fleet.events(run)] == ["run_created", "run_cancelled"]


async def test_a_step_message_of_a_finished_run_is_expired_although_the_step_reads_running(
    fleet: Fleet,
) -> None:
    await fleet.worker()
    first = await fleet.worker(queues="side")
    run = await fleet.start(app.held_on_the_side)
    await fleet.effects.started("a")
    first.kill()
    await run.terminate()
    second = await fleet.worker(queues="side")
    await until("the early exit", lambda: second.said("step not started: expired"))
    assert '"run_status": "cancelled"' in second.log, "it says what it saw"
    seen = await scrape(second)
    assert seen.by("redeliveries_total", "kind") == {"step": 1}
    assert seen.by("prologues_total", "prologue") == {"run_context": 1}
    assert (seen("steps_total"), seen("round_trips_total", script="run_read")) == (0, 0)
    assert len(fleet.effects.starts("a")) == 1


async def test_a_second_message_of_an_inline_step_is_absorbed_and_wakes_the_run_before_it_is_settled(
    fleet: Fleet,
) -> None:
    """A worker with ownership off, and no slot of its own, sends it; the step's owner takes it."""
    owner = await fleet.worker(APP)
    run = await fleet.start(app.one_held_step)
    await fleet.effects.started("a")
    sender = await fleet.worker(APP, concurrency=1, queues="busy,default", inline_ownership=0)
    await fleet.client.start(app.held_then_marks.with_options(queue="busy"))
    await fleet.effects.started("a", 2)

    async def sent() -> bool:
        await Runs(fleet.world).heal(run.run_id, (await fleet.read(run)).head)
        return rows(await scrape(sender)).get("ownership-off", 0) >= 1

    await until("the sender looks at the run", sent)
    await counts(owner, "single flight", lambda s: s("single_flight_absorbed_total") >= 1)
    fleet.effects.open_gate("a")
    assert await run.return_value(timeout=10) == "a"
    assert owner.said("single flight")
    await until("the early exit", lambda: "step not started: " in owner.log)
    assert len(fleet.effects.starts("a")) == 2, "one for each run"


# --- what a message brings ------------------------------------------------------------------------


async def test_a_step_message_without_context_costs_exactly_one_read(fleet: Fleet) -> None:
    """As an older producer would send it."""
    run = await fleet.start(counted.mark_on_the_side)
    delivery = await taken_by_nobody(fleet)
    argument = app.mark.signature.encode_arguments(("a",), {}, with_defaults=True)
    message = StepMessage(None, app.mark.name, argument, {}, 0)
    made = Transition(
        run.run_id,
        new_mark(),
        delivery.held,
        1,
        seen=1,
        position=START,
        decisions=[
            Decision(EventType.RUN_STARTED),
            Decision(EventType.STEP_CREATED, "s1", pack(StepCreated(app.mark.name, argument, "side", {}))),
        ],
        sends=[Send(Kind.STEP, "s1", "side", pack_step_message(message))],
    )
    assert (await Log(fleet.world, "ghost").append(made, queue="default")).answer.value == "ok"
    side = await fleet.worker(APP, queues="side")
    await fleet.effects.seen("a")
    seen = await counts(side, "its end is recorded", lambda s: s("steps_total") == 1)
    assert seen.by("prologues_total", "prologue") == {"run_read": 1}
    assert seen("round_trips_total", script="run_read") == 1
    await fleet.worker(APP)
    assert await run.return_value(timeout=10) == "a", "the wake went to the run's own queue"


async def test_a_run_of_a_newer_spec_is_left_for_a_newer_worker_which_says_so(fleet: Fleet) -> None:
    """Its run messages and its step messages alike."""
    run_id = new_run_id(0)
    spec = SPEC_READS + 1
    name = counted.mark_on_the_side.name
    context = RunContext(name, 1, spec, "default", 1_700_000_000_000, run_id)
    given = counted.mark_on_the_side.signature.encode_arguments((), {}, with_defaults=True)
    await Runs(fleet.world).start(run_id, RunMessage(context, b"s" * 16, given, new_mark()), given)
    old = await fleet.worker(APP, queues="default,side")
    refusal = f"the run has spec {spec}, this worker reads up to {SPEC_READS}"
    await until("the run is given back", lambda: refusal in old.log)
    assert '"reason": "newer_spec"' in old.log and "run_started" not in await _types(fleet, run_id)

    newer = await fleet.worker("tests.acceptance.newer:wf")
    await until("the step is left too", lambda: old.log.count(refusal) >= 2 and _left_step(old))
    assert fleet.effects.all("a") == []
    await fleet.worker("tests.acceptance.newer:wf", queues="side")
    assert await fleet.client.get_run(run_id).return_value(timeout=10) == "a"
    (effect,) = fleet.effects.all("a")
    assert effect.pid not in (old.pid, newer.pid)


def _left_step(worker: WorkerProcess) -> bool:
    return worker.said("step deferred")


async def _types(fleet: Fleet, run_id: str) -> list[str]:
    return [e.type.value for e in await fleet.events(fleet.client.get_run(run_id))]


async def test_what_nobody_can_use_is_counted_by_its_reason(fleet: Fleet) -> None:
    run = await fleet.start(app.one_held_step)
    await fleet.garble("wake", run)
    worker = await fleet.worker()
    assert await fleet.parked(run)
    seen = await counts(worker, "the dead letter", lambda s: s("dead_letters_total") == 1)
    assert seen.by("dead_letters_total", "reason") == {"undecodable": 1}
    await run.terminate()


async def test_a_run_nobody_knows_is_counted_when_it_parks(fleet: Fleet) -> None:
    run = await fleet.start(app.one_held_step)
    stranger = await fleet.worker("tests.acceptance.app:bare", park_after_seconds=0)
    assert await fleet.parked(run)
    seen = await counts(stranger, "the parking", lambda s: s("parked_total") == 1)
    assert seen.by("parked_total", "reason") == {"unknown_workflow": 1}
    await run.terminate()
