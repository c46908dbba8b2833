"""A partition read whole."""

from __future__ import annotations

from typing import Any

import msgpack

from world_redis.reading import PartitionState, pairs, queues_of, read_messages, read_run
from world_redis.runs import CommandCaller


async def read_partition(
    world: CommandCaller, partition: int, *, logs: bool = False, finished: bool = False
) -> PartitionState:
    """A partition as it is: no payload is read, logs and finished runs only when asked for."""
    _, messages, open_key, done_key, parked_key, _ = world.keys.partition(partition)
    names: Any = await world.command("HKEYS", messages)
    ids = [name.decode() for name in names if not name.endswith(b":p")]
    queues = await queues_of(world, partition)
    state = PartitionState(
        messages=await read_messages(world, partition, ids),
        payloads={name[:-2].decode() for name in names if name.endswith(b":p")},
        places=[place for queue in queues for place in await _waiting(world, partition, queue)],
        open=await _members(world, open_key),
        done=await _members(world, done_key),
        parked={
            run.decode(): msgpack.unpackb(value)[0]
            for run, value in pairs(await world.command("HGETALL", parked_key))
        },
        runs={},
    )
    named = state.open | {m.run for m in state.messages.values()} | (state.done if finished else set())
    for id in sorted(named):
        found = await read_run(world, partition, id, log=logs)
        if found is not None:
            state.runs[id] = found
    return state


async def _waiting(world: CommandCaller, partition: int, queue: str) -> list[tuple[str, str, str, str]]:
    keys = world.keys.queue(partition, queue)
    found: list[tuple[str, str, str, str]] = []
    for key in (keys.ready, keys.steps):
        stream: Any = await world.command("XRANGE", key, "-", "+")
        found += [("r", queue, fields[1].decode(), entry.decode()) for entry, fields in stream]
    for state, key in (("d", keys.delayed), ("f", keys.flight)):
        members: Any = await world.command("ZRANGE", key, 0, -1)
        found += [(state, queue, member.decode(), "") for member in members]
    return found


async def _members(world: CommandCaller, key: str) -> set[str]:
    members: Any = await world.command("ZRANGE", key, 0, -1)
    return {member.decode() for member in members}
