"""The sweeper: looks, slowly, for runs that broke the liveness invariant, and wakes them.

It should never find one: a message can only be lost by an operator's hand or a store that lost data. What it
heals is counted (`workflow_liveness_heals_total`) and logged. Every worker sweeps, each more rarely the more
of them there are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from world_redis.roster import live_workers
from world_redis.sweep import sweep
from world_redis.world import RedisWorld

from .ports import Ports
from .telemetry import Telemetry

log = logging.getLogger("worker.sweeper")

EVERY = 30.0  # seconds between two sweeps of a partition, over the whole fleet


async def sweep_for_ever(world: RedisWorld, ports: Ports, telemetry: Telemetry) -> None:
    """Sweep every partition, round after round. A run is woken when two rounds found it broken."""
    suspects: dict[int, Mapping[str, int]] = {}
    while True:
        workers = max(1, len(await live_workers(world)))
        await ports.sleep(EVERY * workers * (0.5 + ports.chance()))
        for partition in world.partitions:
            found = await sweep(world, partition, suspects.get(partition, {}))
            suspects[partition] = found.sightings
            for run_id in found.healed:
                telemetry.liveness_heals.inc()
                log.error("a run without a way forward was woken", extra={"run_id": run_id})
