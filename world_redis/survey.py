"""What `worker doctor` asks of a partition: everything that `liveness.check` does, a page at a time.

The runs or the messages of a partition are never held together. Three walks do it: over the runs, with the
messages that their `out` names; over the places where messages wait, with the headers that these name; over
the headers, with the places that these name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

import msgpack

from .entities import MessageState, Run
from .liveness import Breach, check_places, check_runs, liveness, messages_by_run
from .messages import Kind
from .pages import entries, members, names
from .reading import PartitionState, RunState, many, members_among, queues_of, read_messages, read_run
from .runs import CommandCaller
from .sweep import acquit, living_of

_RUNS, _LOGS = 200, 10  # of an index, read at once: without and with their logs


@dataclass(slots=True)
class Survey:
    """What `worker doctor` tells of a partition."""

    refused: dict[str, Run] = field(default_factory=dict)  # given back by every worker, not parked yet
    breaches: list[Breach] = field(default_factory=list)


async def survey(world: CommandCaller, partition: int, *, deep: bool = False) -> Survey:
    """Everything wrong with a partition. `deep`: every log and finished run is read, too. What others do in
    the meantime may look wrong: what is there at a second survey is."""
    found = Survey()
    suspects: dict[str, tuple[RunState, Breach]] = {}
    breaches: dict[Breach, None] = {}  # a walk may come by twice
    async for part in _runs(world, partition, deep):
        found.refused |= {id: each.run for id, each in part.runs.items() if _refused(each.run)}
        breaches |= dict.fromkeys(check_runs(part))
        suspects |= await _suspects(world, partition, part)
    left = {id: run for id, (run, _) in suspects.items()}
    await acquit(world, partition, left)
    breaches |= dict.fromkeys(suspects[id][1] for id in left)
    async for part in _places(world, partition):
        breaches |= dict.fromkeys(check_places(part))
    async for part in _headers(world, partition, deep):
        breaches |= dict.fromkeys((*check_places(part), *check_runs(part)))
    found.breaches = list(breaches)
    return found


def _refused(run: Run) -> bool:
    return bool(run.refused_since and not run.parked and not run.finished)


async def _suspects(
    world: CommandCaller, partition: int, part: PartitionState
) -> dict[str, tuple[RunState, Breach]]:
    """Runs whose way forward is none of the messages their `out` names, and what is missing."""
    messages = messages_by_run(part)
    found = {}
    for id, run in part.runs.items():
        living = await living_of(world, partition, run.children)
        for breach in liveness(id, run, messages.get(id, []), living):
            found[id] = (run, breach)
    return found


# --- the walks ------------------------------------------------------------------------------------


async def _runs(world: CommandCaller, partition: int, deep: bool) -> AsyncIterator[PartitionState]:
    _, _, open_key, done_key, parked_key, _ = world.keys.partition(partition)
    async for ids in members(world, open_key):
        for some in _cut(ids, deep):
            yield await _part(world, partition, some, logs=deep)
    if deep:
        async for ids in members(world, done_key):
            for some in _cut(ids, deep):
                yield await _part(world, partition, some, logs=True)
    async for ids in names(world, parked_key):
        is_open = await members_among(world, open_key, ids)
        for some in _cut([id for id in ids if id not in is_open], deep):
            yield await _part(world, partition, some, logs=deep)


async def _places(world: CommandCaller, partition: int) -> AsyncIterator[PartitionState]:
    for queue in await queues_of(world, partition):
        keys = world.keys.queue(partition, queue)
        for key in (keys.ready, keys.steps):
            async for page in entries(world, key):
                yield await _at(world, partition, [("r", queue, id, entry) for entry, id in page])
        for state, key in (("d", keys.delayed), ("f", keys.flight)):
            async for ids in members(world, key):
                yield await _at(world, partition, [(state, queue, id, "") for id in dict.fromkeys(ids)])


async def _headers(world: CommandCaller, partition: int, deep: bool) -> AsyncIterator[PartitionState]:
    """And the runs they name that are not open: `_runs` has not seen these."""
    _, messages, open_key, *_ = world.keys.partition(partition)
    async for page in names(world, messages):
        ids = {name.removesuffix(":p") for name in page}
        headers = await read_messages(world, partition, sorted(ids))
        of_runs = {m.run for m in headers.values()}
        ended = of_runs - await members_among(world, open_key, of_runs)
        part = await _part(world, partition, sorted(ended), logs=deep)
        part.messages |= headers
        part.payloads = {name.removesuffix(":p") for name in page if name.endswith(":p")}
        part.places = await _places_of(world, partition, part.messages.values())
        yield part


def _cut(ids: list[str], deep: bool) -> Iterable[list[str]]:
    size = _LOGS if deep else _RUNS
    return (ids[start : start + size] for start in range(0, len(ids), size))


# --- reading a part -------------------------------------------------------------------------------


async def _part(world: CommandCaller, partition: int, ids: Sequence[str], *, logs: bool) -> PartitionState:
    """These runs and the messages their `out` names, without the places."""
    _, _, open_key, done_key, parked_key, _ = world.keys.partition(partition)
    read = await asyncio.gather(*(read_run(world, partition, id, log=logs) for id in ids))
    runs = {id: run for id, run in zip(ids, read, strict=True) if run is not None}
    out = [id for run in runs.values() for id in run.out.values()]
    parked = await many(world, [("HGET", parked_key, id) for id in ids])
    return PartitionState(
        messages=await read_messages(world, partition, out),
        payloads=set(),
        places=[],
        open=await members_among(world, open_key, ids),
        done=await members_among(world, done_key, ids),
        parked={id: msgpack.unpackb(raw)[0] for id, raw in zip(ids, parked, strict=True) if raw},
        runs=runs,
    )


async def _at(
    world: CommandCaller, partition: int, places: list[tuple[str, str, str, str]]
) -> PartitionState:
    """These places and the messages they name."""
    messages = await read_messages(world, partition, [id for _, _, id, _ in places])
    return PartitionState(messages, set(), places, set(), set(), {}, {})


async def _places_of(
    world: CommandCaller, partition: int, messages: Iterable[MessageState]
) -> list[tuple[str, str, str, str]]:
    """The places these messages name, as far as they are there."""
    known = list(messages)
    commands: list[tuple[str, ...]] = []
    for m in known:
        keys = world.keys.queue(partition, m.queue)
        if m.state == "r":
            key = keys.steps if m.kind == Kind.STEP else keys.ready
            commands.append(("XRANGE", key, m.entry, m.entry))
        else:
            commands.append(("ZSCORE", keys.delayed if m.state == "d" else keys.flight, m.id))
    answers = await many(world, commands)
    return [
        (m.state, m.queue, m.id, m.entry if m.state == "r" else "")
        for m, answer in zip(known, answers, strict=True)
        if answer not in (None, [])
    ]
