"""A private server, worker processes of the ordinary command line, a client in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

from worker import Client, Run, RunTimeoutError
from worker.settings import Settings
from world_redis.embedded import EmbeddedServer
from world_redis.log import Log, Snapshot
from world_redis.world import RedisWorld

from . import floor
from .figures import median
from .marks import VARIABLE, Marks

ROOT = Path(__file__).parents[1]
NAMESPACE = "bench"
PATIENCE = 60.0  # seconds; whatever takes longer has hung
_FLOOR_CALLS = 200
_UNDISTURBED = 0.001  # seconds: a little more than a step takes to begin


class Counts(NamedTuple):
    """What the server has been asked so far."""

    scripts: int
    bytes_in: int
    bytes_out: int
    messages: int

    def since(self, earlier: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(self, earlier, strict=True)))


class Process:
    """One process that is measured."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("WORKFLOW_")}
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env={**ours, "PYTHONHASHSEED": "0", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def check(self) -> None:
        """Raises RuntimeError when it has ended, with what it said last."""
        if self._process.poll() is not None:
            raise RuntimeError(f"process {self.pid} ended: {self.log.read_text(errors='replace')[-2000:]}")

    async def ended(self, *, within: float) -> None:
        """Wait for its end. Raises RuntimeError when it failed, TimeoutExpired."""
        if await asyncio.to_thread(self._process.wait, within):
            raise RuntimeError(f"process {self.pid} failed: {self.log.read_text(errors='replace')[-2000:]}")

    def rss(self) -> int:
        """Resident memory in bytes."""
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(self.pid)], capture_output=True, check=True)
        return int(said.stdout) * 1024

    def cpu(self) -> float | None:
        """Seconds of processor time so far; None where there is no /proc."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Let it leave in order; after 15 s without."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, 15)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL it and its children."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


class Stage:
    """One scenario's server and all that talks to it."""

    def __init__(self, server: EmbeddedServer, directory: Path, settings: Mapping[str, str]) -> None:
        self.url = server.url
        self.server = server
        self.directory = directory
        self.marks = Marks(directory / "marks")
        self.processes: list[Process] = []
        self._settings = dict(settings)
        self._floors: list[float] = []
        self._link_floors: list[float] = []
        self.client = Client(self.url, settings=Settings(redis_url=self.url, namespace=NAMESPACE))
        self.world = RedisWorld(self.url, namespace=NAMESPACE, lease=None)

    async def __aenter__(self) -> Self:
        await self.world.open()
        await self.client.open()
        await self.sample_floor()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes))
        await self.client.close()
        await self.world.close()

    async def sample_floor(self) -> None:
        """Measure the floors now: before, between and after what is compared with them, so that whatever
        disturbs the machine disturbs both."""
        self._floors += await floor.sample(self.url, _FLOOR_CALLS)
        self._link_floors += await floor.sample_link(self.url, _FLOOR_CALLS)

    async def floor_after(self, pause: float, calls: int) -> float:
        """Median seconds of a bare call after `pause` seconds in which everybody slept: what waking up costs
        on this machine, whoever is woken."""
        return median(await floor.sample(self.url, calls, pause=pause))

    @property
    def floor(self) -> float:
        """Seconds of a bare call of the transition script over redis-py."""
        return median(self._floors)

    @property
    def mean_floor(self) -> float:
        """The same on average: what many calls in a row take is a sum, and has the slow ones in it."""
        return fmean(self._floors)

    @property
    def link_floor(self) -> float:
        """Seconds of the same over our own link."""
        return median(self._link_floors)

    @property
    def mean_link_floor(self) -> float:
        return fmean(self._link_floors)

    # --- processes ---------------------------------------------------------------------------------

    def launch(self, concurrency: int = 10) -> Process:
        return self.run(
            ["-m", "worker.cli.main", "run", "bench.app:wf", "-c", str(concurrency), "--metrics-port", "0"]
        )

    def run(self, arguments: Sequence[str]) -> Process:
        """Start a Python process that knows this stage."""
        environment = {
            "WORKFLOW_REDIS_URL": self.url,
            "WORKFLOW_NAMESPACE": NAMESPACE,
            "BENCH_URL": self.url,
            "BENCH_DIRECTORY": str(self.directory),
            VARIABLE: str(self.marks.path),
        } | self._settings
        process = Process(arguments, environment, self.directory / f"process-{len(self.processes)}.log")
        self.processes.append(process)
        return process

    async def workers(self, count: int = 1, *, concurrency: int = 10) -> list[Process]:
        """Start worker processes and wait until all take work."""
        started = [self.launch(concurrency) for _ in range(count)]
        for process in started:
            await self._announced(process)
        return started

    async def _announced(self, process: Process) -> None:
        mark = f"-{process.pid}-".encode()
        async with asyncio.timeout(60):
            while True:
                process.check()
                names = await self.world.command("HKEYS", self.world.keys.namespace_record())
                if any(mark in name for name in names):
                    return
                await asyncio.sleep(0.01)

    def said(self) -> str:
        """The end of what the processes wrote, for the message of an error."""
        return "\n".join(process.log.read_text(errors="replace")[-2000:] for process in self.processes)

    # --- runs --------------------------------------------------------------------------------------

    async def result(self, run: Run[Any]) -> Any:
        try:
            return await run.return_value(timeout=PATIENCE)
        except RunTimeoutError as error:
            found = await self.read(run)
            raise RuntimeError(f"{error}: {found.status}, {found.table}; {self.said()}") from error

    async def stamps(self, run: Run[Any]) -> list[int]:
        """The result of a run that was started or woken just now, asked for a moment later. Its next step
        begins without our asking, which would compete with it for server and cores."""
        await asyncio.sleep(_UNDISTURBED)
        stamps: list[int] = await self.result(run)
        return stamps

    async def read(self, run: Run[Any]) -> Snapshot:
        """The last page of a run's log, with what is open."""
        snapshot = await Log(self.world, "bench").read(run.run_id, seen=1 << 50, table=True)
        assert snapshot is not None
        return snapshot

    async def hook_token(self, run: Run[Any]) -> str:
        """Wait until the run rests at a hook; its token."""
        async with asyncio.timeout(PATIENCE):
            while True:
                table = (await self.read(run)).table
                if table is not None and table.hooks:
                    return table.hooks[0].token
                await asyncio.sleep(0.005)

    # --- the server --------------------------------------------------------------------------------

    async def counts(self) -> Counts:
        stats = info(await self.world.command("INFO", "stats"))
        calls = info(await self.world.command("INFO", "commandstats"))
        evalsha = calls.get("cmdstat_evalsha", "calls=0").partition("calls=")[2].partition(",")[0]
        queue = self.world.keys.queue(0, "default")
        added = await self._added(queue.ready) + await self._added(queue.steps)
        bytes_in, bytes_out = int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])
        return Counts(int(evalsha), bytes_in, bytes_out, added)

    async def _added(self, stream: str) -> int:
        """How many entries a stream has ever got."""
        if not await self.world.command("EXISTS", stream):
            return 0
        flat = await self.world.command("XINFO", "STREAM", stream)
        fields = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
        return int(fields[b"entries-added"])

    async def memory_of(self, run: Run[Any]) -> int:
        """Bytes of a run's keys in the server."""
        size = 0
        for key in self.world.keys.run(0, run.run_id):
            size += await self.world.command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0
        return size

    async def server_cpu(self) -> float:
        """Seconds of processor time of the server so far."""
        cpu = info(await self.world.command("INFO", "cpu"))
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


@asynccontextmanager
async def open_stage(**settings: object) -> AsyncIterator[Stage]:
    """A stage with a fresh server. `settings`: ``max_events=10`` is WORKFLOW_MAX_EVENTS of the workers."""
    variables = {f"WORKFLOW_{name.upper()}": str(value) for name, value in settings.items()}
    with EmbeddedServer.start() as server, tempfile.TemporaryDirectory(prefix="bench-") as directory:
        async with Stage(server, Path(directory), variables) as stage:
            yield stage


def info(raw: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in raw.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
