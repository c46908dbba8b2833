"""Real worker processes, what their steps did, and waiting for things to become true.

A `Fleet` is one test's server, namespace and workers. Steps write what they do as lines of a file, which
survives the death of whoever wrote it; a step that must last until the test says so waits at a *gate*.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import msgpack

from tests.acceptance.nursery import ROOT as ROOT
from tests.acceptance.nursery import nursery
from worker import Client, Run, WorkflowDefinition
from worker.settings import Settings
from world_redis.entities import MessageState, message_of
from world_redis.events import Event, EventType
from world_redis.keys import Keys
from world_redis.log import Log, Snapshot
from world_redis.messages import Held
from world_redis.scripts import pack_lua
from world_redis.transition import OpenStep
from world_redis.world import RedisWorld

T = TypeVar("T")

APP = "tests.acceptance.app:wf"
LEASE = 1  # seconds
PATIENCE = 15.0  # seconds a wait may take before the test fails; nothing here takes as long
FINISHED = ("completed", "failed", "cancelled")


@overload
async def until(what: str, look: Callable[[], Awaitable[T]], *, within: float = PATIENCE) -> T: ...
@overload
async def until(what: str, look: Callable[[], T], *, within: float = PATIENCE) -> T: ...
async def until(what: str, look: Callable[[], Any], *, within: float = PATIENCE) -> Any:
    """Look every 10 ms until the answer is true, and return it. `what` names what did not come."""
    end = time.monotonic() + within
    while True:
        found = look()
        seen = await found if inspect.isawaitable(found) else found
        if seen:
            return seen
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.01)


# --- what steps did -------------------------------------------------------------------------------


class Effect(NamedTuple):
    what: str
    phase: str  # start, end, or "" for something that takes no time
    pid: int
    at: float  # seconds on the machine's monotonic clock


class Effects:
    """The side effects of all steps of one test, in the order they happened."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "effects").touch()

    def all(self, what: str = "", phase: str = "") -> list[Effect]:
        lines = (self.directory / "effects").read_text().splitlines()
        found = [Effect(**json.loads(line)) for line in lines]
        return [e for e in found if what in ("", e.what) and phase in ("", e.phase)]

    def starts(self, what: str) -> list[Effect]:
        return self.all(what, "start")

    async def started(self, what: str, times: int = 1) -> list[Effect]:
        """Wait until `what` has started `times` times."""
        await until(f"{what} starts {times} times", lambda: len(self.starts(what)) >= times)
        return self.starts(what)

    async def seen(self, what: str, times: int = 1) -> list[Effect]:
        await until(f"{what} happens {times} times", lambda: len(self.all(what)) >= times)
        return self.all(what)

    def most_at_once(self, what: str) -> int:
        """How many executions of `what` ran at the same time, at most."""
        running = most = 0
        for effect in self.all(what):
            running += {"start": 1, "end": -1, "stopped": -1}[effect.phase]
            most = max(most, running)
        return most

    def open_gate(self, name: str) -> None:
        """Let the steps go on that wait at this gate, now and later."""
        (self.directory / f"gate-{name}").touch()


# --- processes --------------------------------------------------------------------------------------


class WorkerProcess:
    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self._log = log

    @property
    def alive(self) -> bool:
        return nursery().exit_code(self.pid) is None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.alive:
            self.signal(signal.SIGKILL)
        while self.alive:
            time.sleep(0.001)

    async def exit_code(self) -> int:
        await until(f"worker {self.pid} ends", lambda: not self.alive)
        code = nursery().exit_code(self.pid)
        assert code is not None
        return code

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def said(self, message: str) -> bool:
        """Is there a log record of exactly this message?"""
        return f'"message": "{message}"' in self.log


class Fleet:
    def __init__(self, url: str, namespace: str, directory: Path, *, lease: int = LEASE) -> None:
        self.url, self.namespace = url, namespace
        self.effects = Effects(directory)
        self._directory = directory
        self._lease = lease
        settings = Settings(redis_url=url, namespace=namespace, inline_ownership_lease_seconds=lease)
        self.client = Client(url, settings=settings)
        self.world = RedisWorld(url, namespace=namespace, lease=lease)
        self.keys = Keys(namespace)
        self.workers: list[WorkerProcess] = []

    async def __aenter__(self) -> Fleet:
        await self.world.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill_all()
        await self.client.close()
        await self.world.close()

    # --- workers ------------------------------------------------------------------------------------

    async def worker(
        self, app: str = APP, *, concurrency: int = 10, queues: str = "default", **settings: object
    ) -> WorkerProcess:
        """Start a worker process and wait until it takes work. `settings`: ``park_after_seconds=1`` is
        WORKFLOW_PARK_AFTER_SECONDS."""
        worker = self.launch(app, concurrency=concurrency, queues=queues, **settings)
        await until(f"worker {worker.pid} takes work", lambda: self._announced(worker))
        return worker

    def launch(
        self, app: str = APP, *, concurrency: int = 10, queues: str = "default", **settings: object
    ) -> WorkerProcess:
        """Start a worker process."""
        given = {
            "redis_url": self.url,
            "namespace": self.namespace,
            "inline_ownership_lease_seconds": self._lease,
            "strict": 1,
            "metrics_port": 0,
        }
        ours = {f"WORKFLOW_{name.upper()}": str(value) for name, value in (given | settings).items()}
        options = [word for queue in queues.split(",") for word in ("-q", queue)]
        log = self._directory / f"worker-{len(self.workers)}.log"
        pid = nursery().start(
            ["run", app, "-c", str(concurrency), *options],
            ours | {"TEST_DIRECTORY": str(self._directory)},
            log,
        )
        worker = WorkerProcess(pid, log)
        self.workers.append(worker)
        return worker

    def kill_all(self) -> None:
        for worker in self.workers:
            worker.kill()

    async def _announced(self, worker: WorkerProcess) -> bool:
        assert worker.alive, f"worker {worker.pid} did not start:\n{worker.log}"
        record = await self.world.command("HGETALL", self.keys.namespace_record())
        return any(f"-{worker.pid}-".encode() in name for name in record[::2])

    def by_pid(self, pid: int) -> WorkerProcess:
        return next(worker for worker in self.workers if worker.pid == pid)

    # --- runs -----------------------------------------------------------------------------------------

    async def start(self, workflow: WorkflowDefinition[..., T], *args: Any) -> Run[T]:
        return await self.client.start(workflow, *args)

    async def read(self, run: Run[Any]) -> Snapshot:
        """The run's whole log, with what is open."""
        log, events, seen = Log(self.world, "test"), [], 0
        while True:
            page = await log.read(run.run_id, seen=seen, table=True)
            assert page is not None, f"{run.run_id} is not there"
            events += page.events
            if not page.more:
                return page._replace(events=events)
            seen = events[-1].slot

    async def events(self, run: Run[Any], *types: EventType) -> list[Event]:
        return [e for e in (await self.read(run)).events if not types or e.type in types]

    async def finished(self, run: Run[Any], *, within: float = PATIENCE) -> str:
        """Wait for the run's end; its status."""

        async def look() -> str:
            status = await run.status()
            return status if status in FINISHED else ""

        return await until(f"{run.run_id} ends", look, within=within)

    async def worker_ends_or_run_ends(self, worker: WorkerProcess, run: Run[Any]) -> None:
        async def look() -> bool:
            return not worker.alive or await run.status() in FINISHED

        await until(f"worker {worker.pid} or {run.run_id} ends", look)

    async def parked(self, run: Run[Any]) -> str:
        """Wait until the run is parked; the reason."""

        async def look() -> str:
            return (await run.info()).parked

        return await until(f"{run.run_id} parks", look)

    async def hook_token(self, run: Run[Any]) -> str:
        """Wait until the run has an open hook; its token."""

        async def look() -> str:
            table = (await self.read(run)).table
            return table.hooks[0].token if table and table.hooks else ""

        return await until(f"{run.run_id} opens a hook", look)

    async def running(self, run: Run[Any], id: str = "s1") -> OpenStep:
        """The running step of this id."""
        table = (await self.read(run)).table
        assert table is not None
        return next(step for step in table.steps if step.id == id and step.state == "running")

    # --- mischief ---------------------------------------------------------------------------------------

    async def lose(self, message: Held) -> None:
        """Make a message in flight vanish, as if it had never been."""
        names = self.keys.partition(0)[1]
        await self.world.command("ZREM", self.keys.queue(0, "default")[2], message.message_id)
        await self.world.command("HDEL", names, message.message_id, f"{message.message_id}:p")

    async def delivery(self, message: Held) -> MessageState:
        """The message as the store has it now."""
        header = await self.world.command("HGET", self.keys.partition(0)[1], message.message_id)
        return message_of(message.message_id, header)

    async def lapse(self, message: Held) -> None:
        """Move a delivery's deadline into the past."""
        await self.world.command("ZADD", self.keys.queue(0, "default")[2], "XX", 1, message.message_id)
        await self.world.command("LPUSH", self.keys.bell(0, "default"), "1")

    async def rob(self, message: Held) -> None:
        """Make it look as if its holder had been silent for a whole lease, so that the next take has it."""
        names = self.keys.partition(0)[1]
        header: Any = msgpack.unpackb(await self.world.command("HGET", names, message.message_id), raw=True)
        header[-1] = 1  # doubted
        await self.world.command("HSET", names, message.message_id, pack_lua(header))
        await self.lapse(message)

    async def deadline(self, message: Held) -> float:
        """Seconds since the epoch, by the server's clock."""
        score = await self.world.command("ZSCORE", self.keys.queue(0, "default")[2], message.message_id)
        return float(score) / 1000

    async def set_clock(self, moment: float) -> None:
        """The server's clock jumps to `moment` (seconds since the epoch) and stands still there."""
        await self.world.command("HSET", self.keys.partition(0)[0], "pin", int(moment * 1000))

    async def garble(self, key: str, run: Run[Any]) -> None:
        """Overwrite the payload of the message that waits under `key`."""
        message = await self.world.command("HGET", self.keys.run(0, run.run_id)[3], key)
        await self.world.command("HSET", self.keys.partition(0)[1], f"{message.decode()}:p", b"\xc1garbage")

    async def dead_letters(self) -> list[Any]:
        found: list[Any] = await self.world.command("XRANGE", self.keys.partition(0)[5], "-", "+")
        return found
