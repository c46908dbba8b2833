"""What must be so: after every script call, and when a schedule is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from worker.runtime.body import Body
from world_redis.events import Event, EventType
from world_redis.liveness import check
from world_redis.messages import RunContext
from world_redis.reading import PartitionState, RunState

from .cast import wf

if TYPE_CHECKING:
    from .people import SimRun
    from .schedule import Schedule

_STEP_ENDS = frozenset({EventType.STEP_COMPLETED, EventType.STEP_FAILED})


def at_every_step(schedule: Schedule, state: PartitionState) -> Iterator[str]:
    """The store's own invariants, and that no run loses what it knew."""
    for breach in check(state):
        if breach.rule == "liveness" and breach.subject in schedule.robbed:
            continue  # a message was deleted: its rescue comes, which the rule does not count
        yield f"{breach.rule}: {breach.subject}: {breach.detail}"
    for id, found in state.runs.items():
        yield from _moves_on(schedule, id, found)


def _moves_on(schedule: Schedule, id: str, found: RunState) -> Iterator[str]:
    run = found.run
    before = schedule.heads.get(id)
    now = (run.head, run.position.decided, run.finished)
    if before is not None and (now[0] < before[0] or now[1] < before[1] or (before[2] and not now[2])):
        yield f"log: {id}: went from {before} to {now}"
    schedule.heads[id] = now


# --- at the end ---------------------------------------------------------------------------------


def at_the_end(schedule: Schedule, state: PartitionState) -> Iterator[str]:
    """Every run has ended as it may; nothing is left behind."""
    if state.messages:
        yield f"messages left: {sorted(state.messages.values())}"
    for id, found in state.runs.items():
        if not found.run.finished:
            yield f"not finished: {id} {found.run.status} {found.run.parked}"
            continue
        assert found.log is not None
        yield from _recorded(schedule, id, found)
    for run in schedule.runs:
        yield from _outcome(run, state.runs[run.id], tight=schedule.weather.tight)
    yield from _workers(schedule)
    if schedule.calm and schedule.owned:
        yield from _once(schedule)


def _recorded(schedule: Schedule, id: str, found: RunState) -> Iterator[str]:
    """Each step has at most one recorded end, and one that its code came to."""
    assert found.log is not None
    ends = Counter(event.id for event in found.log if event.type in _STEP_ENDS)
    for step, count in ends.items():
        if count > 1:
            yield f"{id}.{step} has {count} recorded ends"
    children = {event.id for event in found.log if event.type is EventType.STEP_CREATED and event.extra}
    ended = {(e.run, e.step) for e in schedule.executions.all if e.ended and not e.unclaimed}
    for event in found.log:
        local = event.type is EventType.STEP_COMPLETED and event.id not in children
        if local and (id, event.id) not in ended:
            yield f"{id}.{event.id} completed, and its code never did"


def _outcome(run: SimRun, found: RunState, *, tight: bool) -> Iterator[str]:
    status, part = found.run.status, run.part
    if status == "completed":
        last = next(event for event in found.log or () if event.type is EventType.RUN_COMPLETED)
        result = wf.codec.decode(last.data)
        if not part.fits(result) and not tight:
            yield f"{run.id} {part.workflow.name}{part.args} returned {result!r}"
    elif status == "failed" and not run.orphaned and not tight:
        last = next(event for event in found.log or () if event.type is EventType.RUN_FAILED)
        # A fail-over may take back what a run was asked, after its child has been cancelled for it.
        by_its_child = (run.cancelled or run.terminated) and b"RunCancelledError" in last.data
        if not by_its_child:
            yield f"{run.id} {part.workflow.name}{part.args} failed: {last.data!r}"
    elif status == "cancelled" and not (run.cancelled or run.terminated or run.orphaned):
        yield f"{run.id} {part.workflow.name} is {status}, and nobody asked for it"
    tidies = status == "cancelled" and not run.terminated and part.workflow.name == "tidy"
    if tidies and not _has_tidied(found.log or ()):
        yield f"{run.id} was cancelled and has not tidied up"


def _has_tidied(log: Sequence[Event]) -> bool:
    """Did the last step, which tidies up, end? The word to cancel may stop even that one when the run had
    come to its end by itself: with its payload and its first step's end."""
    created = [event.id for event in log if event.type is EventType.STEP_CREATED]
    ends = {event.id for event in log if event.type in _STEP_ENDS}
    if created and created[-1] in ends:
        return True
    before = {event.type for event in takewhile(lambda e: e.type is not EventType.RUN_CANCEL_REQUESTED, log)}
    return EventType.HOOK_RECEIVED in before and bool(before & _STEP_ENDS)


def _workers(schedule: Schedule) -> Iterator[str]:
    for worker in schedule.workers:
        if worker.dead:
            continue
        held = worker.holdings.snapshot()
        if held:
            yield f"{worker.name} still renews {held}"
        if worker.host.slots.taken:
            yield f"{worker.name} still has {worker.host.slots.taken} slots taken"
        if worker.host.flights:
            yield f"{worker.name} still has flights {list(worker.host.flights)}"
        if worker.host.detached:
            yield f"{worker.name} still has detached steps {worker.host.detached}"
        if not worker.intake.empty:
            yield f"{worker.name} is not empty"


def _once(schedule: Schedule) -> Iterator[str]:
    """Nothing went wrong: every attempt ran once."""
    attempts = Counter((e.run, e.step, e.attempt) for e in schedule.executions.all if not e.unclaimed)
    for (run, step, attempt), count in attempts.items():
        if count > 1:
            yield f"{run}.{step} attempt {attempt} ran {count} times, and nothing had gone wrong"


async def replays(schedule: Schedule, state: PartitionState) -> list[str]:
    """A fresh body over each log issues the same calls and ends the same way."""
    problems = []
    for id, found in state.runs.items():
        problems += _replay(id, found)
    return problems


def _replay(id: str, found: RunState) -> list[str]:
    run, log = found.run, found.log
    assert log is not None
    workflow = wf.find_workflow(run.workflow, run.version)
    assert workflow is not None
    context = RunContext(
        run.workflow, run.version, run.spec, run.queue, run.created, run.root, run.parent, run.parent_step
    )
    body = Body(workflow, context, id, run.seed, run.created, log[0].data)
    body.learn(log)
    body.run()
    problems = []
    if body.problem is not None or body.misled:
        problems.append(f"replay of {id}: {body.problem or 'misled'}")
    elif run.status == "completed" and (body.outcome is None or body.fresh):
        problems.append(f"replay of {id}: {body.outcome}, and {body.fresh} were never recorded")
    elif run.status == "completed":
        last = next(event for event in log if event.type is EventType.RUN_COMPLETED)
        if getattr(body.outcome, "data", None) != last.data:
            problems.append(f"replay of {id}: {body.outcome} is not {last.data!r}")
    if body.drifts:
        problems.append(f"replay of {id}: {body.drifts}")
    body.close()
    return problems
