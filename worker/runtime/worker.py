"""The worker process: connects, takes, keeps, drains. One per process; as many processes as you like."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from redis.exceptions import RedisError

from world_redis.claims import StartClaims
from world_redis.hooks import Tokens
from world_redis.link import Link
from world_redis.log import Limits as LogLimits
from world_redis.log import Log
from world_redis.queue import Queue
from world_redis.roster import announce, open_agreed, withdraw
from world_redis.runs import Runs, parked_runs
from world_redis.scripts import Switches
from world_redis.world import RedisWorld

from ..executors.asynchronous import AsyncExecutor
from ..executors.base import Executor
from ..executors.threads import ThreadExecutor
from ..sdk.registry import Workflows
from ..settings import Settings
from . import audit
from .host import Host, Limits, Slots
from .intake import Intake
from .keeper import Holdings, Keeper
from .ports import AsyncPorts
from .stepcall import StepRunner
from .sweeper import sweep_for_ever
from .telemetry import Telemetry

log = logging.getLogger("worker")

_BELL_SECONDS = 1.0
_LAST_GRACE = 5.0  # seconds that interrupted step code gets before the process goes without it


class Worker:
    """Runs the workflows and steps of `registry` from `queues`, at most `concurrency` steps at once.

    `run` returns the process' exit code once `drain` was called and everything has been handed back.
    """

    def __init__(
        self,
        registry: Workflows,
        settings: Settings,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 10,
        telemetry: Telemetry | None = None,
        build: str = "",
    ) -> None:
        self.id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.registry = registry
        self.settings = settings
        self.queues = list(queues)
        self.concurrency = concurrency
        self.telemetry = telemetry or Telemetry()
        self.build = build or settings.build_id or "unknown"
        self.intake: Intake | None = None
        self.keeper: Keeper | None = None
        self._world: RedisWorld | None = None
        self._host: Host | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = asyncio.Event()

    # --- from outside -----------------------------------------------------------------------------

    def drain(self) -> None:
        """Finish what runs, take nothing new, hand the rest back. Safe from signal handlers and threads."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._draining.set)

    @property
    def ready(self) -> str:
        """ "" when it takes work, else why it does not."""
        if self._draining.is_set():
            return "draining"
        if self._world is None or not self._world.server:
            return "not connected"
        return ""

    def stats(self) -> dict[str, Any]:
        """What `worker top` and the endpoint show of this process."""
        host, intake = self._host, self.intake
        return {
            "id": self.id,
            "build": self.build,
            "queues": self.queues,
            "concurrency": self.concurrency,
            "steps": host.slots.taken if host else 0,
            "sessions": intake.sessions if intake else 0,
            "draining": self._draining.is_set(),
        }

    # --- life -------------------------------------------------------------------------------------

    async def run(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.registry.resolve()
        audit.install(
            strict=self.settings.strict, count=lambda call: self.telemetry.body_io.labels(call).inc()
        )
        for codec in self.registry.codecs():
            codec.max_bytes, codec.strict = self.settings.max_payload_bytes, self.settings.strict
        async with AsyncExitStack() as stack:
            world = self._make_world()
            stack.push_async_callback(world.close)
            if not await self._connected(world):
                return 0
            resources = await stack.enter_async_context(self._lifespan())
            host = self._host = self._make_host(world, resources)
            intake = self.intake = Intake(
                host, lambda: world.partitions, run_bound=max(10, 4 * self.concurrency)
            )
            await stack.enter_async_context(self._kept(world, host, intake))
            jobs = [
                asyncio.create_task(job, name=name)
                for job, name in (
                    (self._announce(world), "announce"),
                    (self._listen(world, intake), "bells"),
                    (intake.run(), "intake"),
                    (sweep_for_ever(world, host.ports, self.telemetry), "sweeper"),
                )
            ]
            log.info("worker started", extra=self.stats())
            await self._until_drained(jobs, intake)
            intake.close()
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await host.ports.within(
                withdraw(world, self.id), _LAST_GRACE
            )  # a server that is away must not hold us
        log.info("worker stopped", extra={"id": self.id})
        return 0

    async def _connected(self, world: RedisWorld) -> bool:
        """Open the store, however long it is away. False: asked to stop before it came."""
        opening = asyncio.create_task(open_agreed(world))
        stopping = asyncio.create_task(self._draining.wait())
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            return False
        opening.result()
        return True

    async def _until_drained(self, jobs: Sequence[asyncio.Task[Any]], intake: Intake) -> None:
        """Wait for `drain`, then for what is in flight; interrupt what takes longer than it may."""
        assert self._host is not None
        waiting = asyncio.create_task(self._draining.wait())
        done, _ = await asyncio.wait({waiting, *jobs}, return_when=asyncio.FIRST_COMPLETED)
        self._host.draining = True
        for job in done - {waiting}:
            for other in jobs:
                other.cancel()  # take nothing that nobody would keep
            job.result()  # a job that ended on its own has failed: say how
        log.info("draining", extra={"seconds": self.settings.drain_seconds})
        intake.drain()
        if not await _within(self.settings.drain_seconds, lambda: intake.at_rest):
            intake.interrupt()
            if not await _within(_LAST_GRACE, lambda: intake.at_rest):
                log.warning("leaving running steps behind", extra=self.stats())

    # --- parts ------------------------------------------------------------------------------------

    def _make_world(self) -> RedisWorld:
        s = self.settings
        world = RedisWorld(
            s.redis_url,
            namespace=self.registry.namespace or s.namespace,
            partitions=s.partitions,
            lease=s.lease,
            durability=s.durable,
            switches=Switches(s.inline_ownership, s.queue_owned_backstop),
            queues=self.queues,
        )
        self._world = world
        return world

    def _lifespan(self) -> AbstractAsyncContextManager[Any]:
        """What the application opens once per worker process."""
        if self.registry.lifespan is not None:
            return self.registry.lifespan(self.registry)
        return contextlib.nullcontext()

    def _make_host(self, world: RedisWorld, resources: Any) -> Host:
        s = self.settings
        ports = AsyncPorts(world, lambda script: self.telemetry.round_trips.labels(script).inc())
        executors: dict[str, Executor] = {
            "async": AsyncExecutor(),
            "thread": ThreadExecutor(self.concurrency),
        }
        return Host(
            ports=ports,
            log=Log(ports.call, self.id, LogLimits(s.max_events, s.retention_seconds * 1000)),
            queue=Queue(ports.call, self.id),
            tokens=Tokens(world),
            claims=StartClaims(world),
            registry=self.registry,
            queues=self.queues,
            steps=StepRunner(
                ports,
                executors,
                resources,
                on_seconds=lambda step, seconds: self.telemetry.step_seconds.labels(step).observe(seconds),
            ),
            slots=Slots(self.concurrency),
            holdings=Holdings(),
            telemetry=self.telemetry,
            limits=Limits(
                lease=int(s.lease * 1000),
                retention=s.retention_seconds * 1000,
                max_inline_steps=s.max_inline_steps,
                live_runs=s.live_runs,
                max_step_crashes=s.max_step_crashes,
                max_deliveries=s.max_queue_deliveries,
                park_after=int(s.park_after_seconds * 1000),
                inline_ownership=s.inline_ownership,
                queue_backstop=s.queue_owned_backstop,
                async_step_completed=s.async_step_completed,
                strict=s.strict,
            ),
            build=self.build,
        )

    @contextlib.asynccontextmanager
    async def _kept(self, world: RedisWorld, host: Host, intake: Intake) -> AsyncIterator[None]:
        """The keeper thread, for as long as anything may be in flight."""
        assert isinstance(host.holdings, Holdings)
        keeper = self.keeper = Keeper(
            world.url,
            world.keys,
            host.holdings,
            consumer=self.id,
            lease=self.settings.lease,
            queues=world.queues,
            on_word=intake.signal,
            stall_after=self.settings.loop_stall_seconds,
            on_round_trip=lambda: self.telemetry.round_trips.labels("renew").inc(),
            on_stall=self.telemetry.loop_stall_seconds.observe,
        )
        keeper.start()
        try:
            yield
        finally:
            keeper.stop()
            await asyncio.to_thread(keeper.join, self.settings.lease / 3)

    async def _listen(self, world: RedisWorld, intake: Intake) -> None:
        """Block on the bells of the queues served, on a connection of its own. A ring wakes one worker, so a
        full one does not listen."""
        link: Link | None = None
        while True:
            await intake.hungry()
            try:
                link = link or await Link.open(world.url)
                keys = [world.keys.bell(n, queue) for queue in self.queues for n in world.partitions]
                if await link.call("BLPOP", *keys, _BELL_SECONDS) is not None:
                    intake.ring()
                    await asyncio.sleep(0)  # the take goes out before we listen again
            except (RedisError, OSError):
                if link is not None:
                    await link.close()
                link = None
                await asyncio.sleep(0.5)  # takes go on by the clock meanwhile

    async def _announce(self, world: RedisWorld) -> None:
        """This worker's line in the namespace record, renewed while it lives."""
        while True:
            await self._unpark(world)
            partitions = await world.learn_partitions()
            about = {**self.stats(), "lease": self.settings.lease, "partitions": partitions}
            await announce(world, self.id, about)
            await asyncio.sleep(self.settings.lease / 3)

    async def _unpark(self, world: RedisWorld) -> None:
        """Runs that other builds could not take on get a try from this one."""
        runs = Runs(world)
        for partition in world.partitions:
            for run_id, (reason, _, builds) in (await parked_runs(world, partition)).items():
                if self.build not in builds.split():
                    await runs.unpark(run_id, build=self.build)
                    log.info("parked run tried again", extra={"run_id": run_id, "reason": reason})


async def _within(seconds: float, done: Any) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not done():
        if loop.time() >= end:
            return False
        await asyncio.sleep(0.02)
    return True
