"""The walk over a partition's open runs that wakes those without a way forward, which should never exist.

It looks at one run after the other and asks for small pages, so a million runs cost no more memory than one,
here or in the server's buffers; what is finished is not read at all. A run's messages are found through its
`out`. A run message that was handed out may have lost its place there to a later one: for the few runs that
seem to have no message, the places where messages wait are walked as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from .entities import MessageState
from .events import Answer
from .liveness import liveness
from .pages import entries, members
from .reading import RunState, members_among, queues_of, read_messages, read_run
from .runs import CommandCaller, Runs


class Sweep(NamedTuple):
    sightings: Mapping[str, int]  # runs found without a way forward → head slot; pass it to the next sweep
    healed: list[str]  # runs that were woken


async def _go_on() -> None:
    """No rest."""


async def sweep(
    world: CommandCaller,
    partition: int,
    previous: Mapping[str, int],
    *,
    rest: Callable[[], Awaitable[None]] = _go_on,
) -> Sweep:
    """Wake the runs of a partition that break the liveness invariant, and did so with the same head at the
    sweep before (`previous`: its sightings). One sighting is none: a partition is not read at one moment.
    `rest` is awaited after every page of open runs."""
    suspects = await _suspects(world, partition, rest)
    await acquit(world, partition, suspects)
    sightings = {id: found.run.head for id, found in suspects.items()}
    healed = []
    for id, head in sightings.items():
        if previous.get(id) == head and await Runs(world).heal(id, head) is Answer.OK:
            healed.append(id)
    return Sweep(sightings, healed)


async def _suspects(
    world: CommandCaller, partition: int, rest: Callable[[], Awaitable[None]]
) -> dict[str, RunState]:
    """The open runs whose way forward none of the messages in their `out` is. Most are being worked on."""
    suspects: dict[str, RunState] = {}
    async for ids in members(world, world.keys.partition(partition)[2]):
        for id in ids:
            found = await read_run(world, partition, id)
            if found is not None and not await _goes_on(world, partition, id, found):
                suspects[id] = found
        await rest()
    return suspects


async def _goes_on(world: CommandCaller, partition: int, id: str, found: RunState) -> bool:
    messages = await read_messages(world, partition, list(found.out.values()))
    living = await living_of(world, partition, found.children)
    return _has_way(id, found, [m for m in messages.values() if m.run == id], living)


def _has_way(id: str, found: RunState, messages: list[MessageState], living: Collection[str] = ()) -> bool:
    return not any(liveness(id, found, messages, living))


async def living_of(world: CommandCaller, partition: int, children: Collection[str]) -> set[str]:
    """Those of a run's children that are not finished; they live in its partition."""
    return await members_among(world, world.keys.partition(partition)[2], children)


async def acquit(world: CommandCaller, partition: int, suspects: dict[str, RunState]) -> None:
    """Take out those that have a message elsewhere. What is in flight is walked first: it is never much, and
    nearly always all that is looked for."""
    async for ids in _waiting(world, partition):
        if not suspects:
            return
        for m in (await read_messages(world, partition, ids)).values():
            if m.run in suspects and _has_way(m.run, suspects[m.run], [m]):
                del suspects[m.run]


async def _waiting(world: CommandCaller, partition: int) -> AsyncIterator[list[str]]:
    """Ids of messages in flight, then of those put off, then of run messages ready to be taken."""
    keys = [world.keys.queue(partition, queue) for queue in await queues_of(world, partition)]
    for key in (*(each.flight for each in keys), *(each.delayed for each in keys)):
        async for ids in members(world, key):
            yield ids
    for each in keys:
        async for page in entries(world, each.ready):
            yield [id for _, id in page]
