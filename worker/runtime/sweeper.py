"""The sweeper: looks, slowly, for runs that broke the liveness invariant, and wakes them.

It should never find one: a message can only be lost by an operator's hand or a store that lost data. What it
heals is counted (`workflow_liveness_heals_total`) and logged. Every worker sweeps, each more rarely the more
of them there are, and rests most of the time: a hundred thousand runs that wait must not be felt by one that
works.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from world_redis.roster import live_workers
from world_redis.sweep import sweep
from world_redis.world import RedisWorld

from .ports import Ports
from .telemetry import Telemetry

log = logging.getLogger("worker.sweeper")

EVERY = 30.0  # seconds between two sweeps of a partition, over the whole fleet
RESTS = 4.0  # times as long as it worked


async def sweep_for_ever(world: RedisWorld, ports: Ports, telemetry: Telemetry) -> None:
    """Sweep every partition, round after round. A run is woken when two rounds found it broken."""
    suspects: dict[int, Mapping[str, int]] = {}
    while True:
        workers = max(1, len(await live_workers(world)))
        await ports.sleep(EVERY * workers * (0.5 + ports.chance()))
        for partition in world.partitions:
            found = await sweep(
                world, partition, suspects.get(partition, {}), rest=Pace(ports.now, ports.sleep).rest
            )
            suspects[partition] = found.sightings
            for run_id in found.healed:
                telemetry.liveness_heals.inc()
                log.error("a run without a way forward was woken", extra={"run_id": run_id})


class Pace:
    """Keeps a job to its share of the time, by a clock and a sleep in seconds."""

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self._now, self._sleep = now, sleep
        self._since = now()

    async def rest(self) -> None:
        await self._sleep((self._now() - self._since) * RESTS)
        self._since = self._now()
