"""The engine of one worker in this process, on a real server whose clock the test holds.

A `Process` is what a worker process is to the store: an intake, sessions and deliveries under one name. It
takes and works until nothing is left to do now, then the clock moves to whatever falls due next. It can be
made to die at any call of a script: before the script runs, or after it ran and before its answer arrived.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.partition import read_partition
from worker import WorkflowDefinition, Workflows
from worker.executors.asynchronous import AsyncExecutor
from worker.executors.threads import ThreadExecutor
from worker.runtime.host import Host, Limits, Slots
from worker.runtime.intake import Intake
from worker.runtime.stepcall import StepRunner
from worker.runtime.telemetry import Telemetry
from world_redis.claims import StartClaims
from world_redis.events import FINISHED, Event
from world_redis.hooks import HookAddress, Hooks, Tokens
from world_redis.ids import new_mark, new_run_id
from world_redis.liveness import Breach, check
from world_redis.log import Log, Snapshot
from world_redis.messages import Held, RunContext, RunMessage
from world_redis.queue import Queue
from world_redis.runs import Runs
from world_redis.scripts import ScriptCall, Switches
from world_redis.world import RedisWorld

LEASE = 30.0  # seconds, of a clock that costs nothing
PATIENCE = 10.0  # real seconds a process may work before the test fails; none needs one
SPEC = 6
# The whole folder also passes with it: WORKFLOW_ASYNC_STEP_COMPLETED=1 pytest tests/engine
DEFERRED = os.environ.get("WORKFLOW_ASYNC_STEP_COMPLETED") == "1"
_TELEMETRY = Telemetry()


class Clock:
    """The server's time, pinned. It moves when told to."""

    def __init__(self, world: RedisWorld) -> None:
        self._world = world
        self.ms = int(time.time() * 1000)

    async def forward(self, ms: int) -> None:
        self.ms += ms
        await self._world.command("HSET", self._world.keys.partition(0)[0], "pin", self.ms)

    async def forward_to_what_is_due(self) -> None:
        """To the moment the next message falls due or lapses."""
        _, delayed, flight, *_ = self._world.keys.queue(0, "default")
        moments = []
        for key in (delayed, flight):
            first = await self._world.command("ZRANGE", key, 0, 0, "WITHSCORES")
            moments += [int(float(score)) for score in _scores(first)]
        await self.forward(max(1, min(moments, default=self.ms + 1000) - self.ms))


def _scores(reply: Any) -> list[Any]:
    return [score for _, score in reply] if reply and isinstance(reply[0], list) else reply[1::2]


@dataclass(slots=True)
class Cut:
    """Die, or fall asleep, at the `nth` call: before its script runs, or `answered` but not told yet."""

    nth: int
    answered: bool
    sleeps: bool = False

    def __str__(self) -> str:
        what = "falls asleep" if self.sleeps else "dies"
        return f"{what} {'after' if self.answered else 'before'} call {self.nth}"


class CutPorts:
    """The ways out of a process that may die at one of them."""

    def __init__(self, world: RedisWorld, clock: Clock, cut: Cut | None) -> None:
        self._world, self._clock, self._cut = world, clock, cut
        self.calls: list[str] = []  # scripts asked for, in order
        # Awaited before a script, and again when it has run (`answered`), before its caller is told.
        self.on_call: Callable[[ScriptCall, bool], Awaitable[None]] | None = None
        self.dead = asyncio.Event()
        self.asleep = asyncio.Event()
        self.woken = asyncio.Event()
        self.tasks: set[asyncio.Task[Any]] = set()

    async def call(self, call: ScriptCall) -> list[Any]:
        if self.dead.is_set():
            raise asyncio.CancelledError  # the dead ask for nothing
        self.calls.append(call.script)
        if self._cut is None or len(self.calls) != self._cut.nth:
            return await self._held(call)
        reply = await self._world(call) if self._cut.answered else []
        if self._cut.sleeps:
            self.asleep.set()
            await self.woken.wait()
            return reply or await self._world(call)
        self.dead.set()
        await asyncio.Event().wait()
        return reply

    async def _held(self, call: ScriptCall) -> list[Any]:
        if self.on_call is not None:
            await self.on_call(call, False)
        reply = await self._world(call)
        if self.on_call is not None:
            await self.on_call(call, True)
        return reply

    def server(self) -> str:
        return self._world.server

    def now(self) -> float:
        return self._clock.ms / 1000

    def chance(self) -> float:
        return 0.5

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def within(self, waiting: Awaitable[Any], seconds: float) -> bool:
        try:
            await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            return False
        return True

    def spawn(self, job: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(job, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


class Unkept:
    """Nobody renews: the clock moves only when nothing is in flight."""

    def add(self, partition: int, held: Held) -> None: ...
    def drop(self, partition: int, held: Held) -> None: ...


class Process:
    """One worker process, as far as the store can see."""

    def __init__(
        self,
        world: RedisWorld,
        clock: Clock,
        registry: Workflows,
        *,
        cut: Cut | None = None,
        queues: Sequence[str] = ("default",),
        concurrency: int = 10,
        limits: Limits | None = None,
    ) -> None:
        self.name = f"p-{secrets.token_hex(3)}"
        self.clock = clock
        self.ports = CutPorts(world, clock, cut)
        registry.resolve()
        self.host = Host(
            ports=self.ports,
            log=Log(self.ports.call, self.name),
            queue=Queue(self.ports.call, self.name),
            tokens=Tokens(world),
            claims=StartClaims(world),
            registry=registry,
            queues=queues,
            steps=StepRunner(self.ports, {"async": AsyncExecutor(), "thread": ThreadExecutor(concurrency)}),
            slots=Slots(concurrency),
            holdings=Unkept(),
            telemetry=_TELEMETRY,
            limits=_with_environment(limits or Limits(strict=True)),
            build="b1",
        )
        self.intake = Intake(self.host, lambda: [0], run_bound=40)

    async def work(self, over: Callable[[], Awaitable[bool]]) -> None:
        """Take and work until `over`, or until it dies. The clock moves while there is nothing to do."""
        working = asyncio.create_task(self._work(over))
        await self._first(working, self.ports.dead)
        if self.ports.dead.is_set():
            await self.die(working)
        else:
            await working

    async def work_until_asleep(self, over: Callable[[], Awaitable[bool]]) -> asyncio.Task[None]:
        """Take and work until it falls asleep, or until `over`. The task goes on when it is woken."""
        working = asyncio.create_task(self._work(over))
        await self._first(working, self.ports.asleep)
        return working

    async def _first(self, working: asyncio.Task[None], event: asyncio.Event) -> None:
        waiting = asyncio.create_task(event.wait())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def _work(self, over: Callable[[], Awaitable[bool]]) -> None:
        while not await over():
            due = await self.intake.take()
            if not self.intake.empty:
                await self.rest()
            elif due > 0:
                await self.clock.forward_to_what_is_due()

    async def rest(self) -> None:
        """Wait until nothing is in flight here."""
        async with asyncio.timeout(PATIENCE):
            while not self.intake.empty:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.0002)

    async def die(self, *more: asyncio.Task[Any]) -> None:
        """Everything it was doing stops where it stands."""
        self.ports.dead.set()
        steps = {task for task in asyncio.all_tasks() if task.get_name() == "step"}
        doomed = self.ports.tasks | steps | set(more)
        while doomed := {task for task in doomed if not task.done()}:
            for task in doomed:
                task.cancel()
            await asyncio.wait(doomed)
        await self.close()

    async def leave(self) -> None:
        """Let what it does come to an end, then go."""
        await self.rest()
        await self.close()

    async def close(self) -> None:
        """Drop its bodies, so that what they hold is not left to the garbage collector."""
        self.intake.close()


def _with_environment(limits: Limits) -> Limits:
    return replace(limits, async_step_completed=True) if DEFERRED else limits


class Stage:
    """A namespace of its own, with runs on it and processes that come and go."""

    def __init__(self, url: str, registry: Workflows, *, switches: Switches | None = None) -> None:
        self.world = RedisWorld(
            url, namespace=f"e{secrets.token_hex(5)}", lease=LEASE, switches=switches, patience=5
        )
        self.registry = registry
        self.clock = Clock(self.world)

    async def __aenter__(self) -> Stage:
        await self.world.open()
        await self.clock.forward(0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.world.close()

    def process(self, *, cut: Cut | None = None, **how: Any) -> Process:
        return Process(self.world, self.clock, self.registry, cut=cut, **how)

    async def start(self, workflow: WorkflowDefinition[..., Any], *args: Any) -> str:
        run_id = new_run_id(0)
        context = RunContext(workflow.name, workflow.version, SPEC, "default", self.clock.ms, run_id)
        data = workflow.signature.encode_arguments(args, {}, with_defaults=True)
        message = RunMessage(context, os.urandom(16), data, new_mark())
        await Runs(self.world).start(run_id, message, data)
        return run_id

    async def read(self, run_id: str) -> Snapshot:
        log, events, seen = Log(self.world, "test"), [], 0
        while True:
            page = await log.read(run_id, seen=seen, table=True)
            assert page is not None
            events += page.events
            if not page.more:
                return page._replace(events=events)
            seen = events[-1].slot

    async def events(self, run_id: str) -> list[Event]:
        return (await self.read(run_id)).events

    async def finished(self, run_id: str) -> bool:
        snapshot = await Log(self.world, "test").read(run_id, seen=1 << 50, record=False)
        return snapshot is not None and snapshot.status in FINISHED

    async def resume(self, run_id: str, resume_id: str, data: bytes) -> bool:
        """Send a payload to the run's open hook; False when it has none."""
        table = (await self.read(run_id)).table
        if table is None or not table.hooks:
            return False
        (hook,) = table.hooks
        await Hooks(self.world).resume(HookAddress(run_id, hook.id), hook.token, resume_id, data)
        return True

    async def breaches(self) -> list[Breach]:
        return check(await read_partition(self.world, 0, logs=True, finished=True))
