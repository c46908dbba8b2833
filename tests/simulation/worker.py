"""A simulated worker: the runtime's own intake, sessions and deliveries, with every way out seeded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker.executors.asynchronous import AsyncExecutor
from worker.runtime.host import Host, Limits, Slots
from worker.runtime.intake import Intake
from worker.runtime.keeper import Holdings, Words
from worker.runtime.stepcall import StepRunner
from worker.runtime.telemetry import Telemetry
from worker.sdk.registry import Workflows
from world_redis.hooks import HookAddress, Tokens
from world_redis.log import Limits as LogLimits
from world_redis.log import Log
from world_redis.messages import Held
from world_redis.queue import Queue, renewal, renewed
from world_redis.scripts import ScriptCall

from .store import PARTITION, at_once
from .weather import LEASE

if TYPE_CHECKING:
    from .schedule import Schedule

_TELEMETRY = Telemetry()


@dataclass(slots=True)
class Parked:
    """Something a worker waits for; the schedule decides when it goes on."""

    worker: SimWorker
    what: str  # call, token, step
    label: str
    future: asyncio.Future[Any]
    call: ScriptCall | None = None
    token: Any = None  # a coroutine function over the store's own registry
    sent: bool = False  # it ran once and the reply was lost
    reply: Any = None  # it ran, and its worker has not looked at the reply yet


class SimPorts:
    """Every way out of one worker."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker

    async def call(self, call: ScriptCall) -> list[Any]:
        if call.meanwhile is not None:
            call.meanwhile()
        reply: list[Any] = await self._worker.park("call", call.script, call=call)
        return reply

    def server(self) -> str:
        return self._worker.server

    def now(self) -> float:
        """Its clock may run a little fast or slow."""
        return self._worker.schedule.loop.time() * self._worker.drift

    def chance(self) -> float:
        return self._worker.schedule.entropy.random()

    def entropy(self, size: int) -> bytes:
        return self._worker.schedule.entropy.randbytes(size)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, waiting: Awaitable[Any], seconds: float) -> bool:
        try:
            await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            return False
        return True

    def spawn(self, job: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self._worker.schedule.loop.create_task(job, name=name)


class NoClaims:
    """Runs of the simulation have no idempotency keys."""

    async def end(self, key: str, retention_ms: int) -> None:
        raise AssertionError(f"a key nobody gave: {key}")


class SimTokens:
    """The registry of chosen tokens, each question an instant of its own."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._real = Tokens(worker.schedule.store)

    async def claim(self, token: str, address: HookAddress) -> HookAddress:
        held: HookAddress = await self._ask("claim", token, address)
        return held

    async def take_over(self, token: str, loser: HookAddress, winner: HookAddress) -> bool:
        moved: bool = await self._ask("take_over", token, loser, winner)
        return moved

    async def release(self, token: str, address: HookAddress) -> None:
        await self._ask("release", token, address)

    async def _ask(self, verb: str, token: str, *rest: HookAddress) -> Any:
        def ask() -> Any:
            return at_once(getattr(self._real, verb)(token, *rest))

        label = f"{verb} {token} {' '.join(f'{each.run_id[-6:]}.{each.hook}' for each in rest)}"
        return await self._worker.park("token", label, token=ask)


class SimWorker:
    """One process. `silent`: its keeper does not renew; `paused`: nothing of it goes on."""

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        registry: Workflows,
        *,
        queues: list[str],
        concurrency: int,
        limits: Limits,
        drift: float,
        build: str,
    ) -> None:
        self.schedule = schedule
        self.name = name
        self.drift = drift
        self.build = build
        self.dead = False
        self.paused = 0  # scheduler steps left
        self.silent = 0  # scheduler steps left
        self.renewed_at = schedule.now
        self.renewed: set[Held] = set()  # what it kept then
        self.server = schedule.store.server
        self.holdings = Holdings()
        self._words = Words(self.holdings)
        ports = SimPorts(self)
        self.host = Host(
            ports=ports,
            log=Log(ports.call, name, LogLimits(retention_ms=10**9)),
            queue=Queue(ports.call, name),
            tokens=SimTokens(self),
            claims=NoClaims(),
            registry=registry,
            queues=queues,
            steps=StepRunner(ports, {"async": AsyncExecutor()}, self),
            slots=Slots(concurrency),
            holdings=self.holdings,
            telemetry=_TELEMETRY,
            limits=limits,
            build=build,
        )
        self.intake = Intake(self.host, lambda: [PARTITION], run_bound=max(3, 2 * concurrency))

    def start(self) -> None:
        self._make(self.intake.run(), f"{self.name} intake")

    def drain(self) -> None:
        self.host.draining = True
        self.intake.drain()

    @property
    def gone(self) -> bool:
        """Drained: it has nothing and takes nothing."""
        return self.host.draining and not self.dead and not self.schedule.loop.tasks_of(self)

    def keeps(self, held: Held) -> bool:
        """It holds this delivery, and has renewed it as a healthy keeper does."""
        in_time = self.schedule.now - self.renewed_at <= LEASE // 3
        return in_time and held in self.renewed and held in self.holdings

    async def park(self, what: str, label: str, **more: Any) -> Any:
        """Wait until the schedule lets this go on."""
        if self.dead:
            raise asyncio.CancelledError
        future: asyncio.Future[Any] = self.schedule.loop.create_future()
        self.schedule.parked.append(Parked(self, what, label, future, **more))
        return await future

    def renew(self) -> None:
        """What the keeper thread does at a third of the lease."""
        self.renewed_at = self.schedule.now
        snapshot = self._words.begin()
        self.renewed = {item for held in snapshot.values() for item in held}
        for partition, held in snapshot.items():
            self.server = self.schedule.store.server
            words = renewed(self.schedule.store.run(renewal(self.name, partition, held)))
            self.schedule.note(f"{self.name} renews {self.schedule.names.held(held)} → {' '.join(words)}")
            for item, word in self._words.to_hand_on(partition, held, words):
                self.schedule.loop.call_soon(self.intake.signal, item.message_id, item.number, word)

    def kill(self) -> None:
        """It stops here. Nothing it still does to unwind reaches the outside."""
        self.dead = True
        loop = self.schedule.loop
        loop.unwinding.append(self._make(self._unwind(loop.tasks_of(self)), f"{self.name} unwinds"))

    async def _unwind(self, tasks: list[asyncio.Task[Any]]) -> None:
        self.intake.close()
        for task in tasks:
            task.cancel()

    def _make(self, job: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        loop = self.schedule.loop
        loop.making = self
        task = loop.create_task(job, name=name)
        loop.making = None
        return task
