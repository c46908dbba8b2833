"""``worker queues``: how much waits, how old it is, and who works."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click
import msgpack
import orjson

from world_redis.world import RedisWorld

from ..sdk.client import Client
from ..sdk.run import pairs
from .commands import json_option, print_json, print_table, with_client


@dataclass(slots=True)
class QueueState:
    """One queue over all partitions."""

    queue: str
    backlog: int = 0  # ready, or due
    oldest_seconds: float = 0.0  # of the ready ones
    delayed: int = 0  # not due yet, rescues included
    in_flight: int = 0
    workers: int = 0  # that serve it


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker's line in the namespace record."""

    id: str
    build: str
    queues: list[str]
    concurrency: int
    steps: int
    draining: bool


@click.command()
@json_option
@with_client
async def queues(client: Client, as_json: bool) -> None:
    """Show every queue of the namespace: backlog, age, work in flight, workers."""
    world = await client.world()
    workers = await live_workers(world)
    states = await queue_states(world, workers)
    if as_json:
        print_json({"queues": states, "workers": workers})
        return
    print_table(
        ("queue", "backlog", "oldest", "delayed", "in flight", "workers"),
        (
            (s.queue, s.backlog, f"{s.oldest_seconds:.1f} s", s.delayed, s.in_flight, s.workers)
            for s in states
        ),
        empty="no queues",
    )
    print_table(
        ("worker", "build", "queues", "steps", "draining"),
        ((w.id, w.build, ", ".join(w.queues), f"{w.steps}/{w.concurrency}", w.draining) for w in workers),
        empty="\nno live workers",
        title="\nworkers",
    )


async def live_workers(world: RedisWorld) -> list[LiveWorker]:
    """Workers that have renewed their line within two leases."""
    record = pairs(await world.command("HGETALL", world.keys.namespace_record()))
    now = await server_ms(world)
    found = []
    for name, value in record.items():
        if name.startswith("worker:"):
            about = orjson.loads(value)
            if now - about["seen"] < 2000 * about["lease"]:
                known = {field: about[field] for field in LiveWorker.__slots__}
                found.append(LiveWorker(**known))
    return sorted(found, key=lambda worker: worker.id)


async def queue_states(world: RedisWorld, workers: list[LiveWorker]) -> list[QueueState]:
    states: dict[str, QueueState] = {}
    for partition in world.partitions:
        raw: Any = await world.command("HGET", world.keys.partition(partition)[0], "queues")
        for name in msgpack.unpackb(raw) if raw else ():
            state = states.setdefault(name, QueueState(name))
            await _add(world, partition, state)
    for state in states.values():
        state.workers = sum(state.queue in worker.queues for worker in workers)
    return sorted(states.values(), key=lambda state: state.queue)


async def _add(world: RedisWorld, partition: int, state: QueueState) -> None:
    keys = world.keys.queue(partition, state.queue)
    now = await server_ms(world)
    due = await world.command("ZCOUNT", keys.delayed, "-inf", now)
    for stream in (keys.ready, keys.steps):
        first = await world.command("XRANGE", stream, "-", "+", "COUNT", 1)
        if first:
            since = (now - int(first[0][0].split(b"-")[0])) / 1000
            state.oldest_seconds = max(state.oldest_seconds, since)
        state.backlog += await world.command("XLEN", stream)
    state.backlog += due
    state.delayed += await world.command("ZCARD", keys.delayed) - due
    state.in_flight += await world.command("ZCARD", keys.flight)


async def server_ms(world: RedisWorld) -> int:
    """The server's clock."""
    answer: Any = await world.command("TIME")
    return int(answer[0]) * 1000 + int(answer[1]) // 1000 if answer else round(time.time() * 1000)
