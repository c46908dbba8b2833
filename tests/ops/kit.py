"""Programs that the operations tests run for real: ours, Redis under an ACL, Prometheus."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from tests.acceptance.kit import ROOT, until

OPS = ROOT / "ops"


class Process:
    """A program and what it says, ended with the test."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | environment, stdout=output, stderr=output
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.end)

    def end(self) -> int:
        """SIGTERM; its exit code."""
        if self.alive:
            self._process.terminate()
        return self._process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def http(port: int, path: str) -> tuple[int, str]:
    """Status and body; (0, reason) when nobody answers."""

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    return await asyncio.to_thread(get)


async def endpoint_port(program: Any) -> int:
    """The port a program of ours has said its metrics are on."""

    def look() -> int:
        assert program.alive, program.log
        found = re.search(r'"port": (\d+)', program.log)
        return int(found[1]) if found else 0

    return await until("the endpoint is served", look)


# --- our programs -----------------------------------------------------------------------------------


class ExporterProcess(Process):
    """``worker exporter`` on a free port."""

    def __init__(self, directory: Path, url: str, namespace: str) -> None:
        super().__init__(
            [sys.executable, "-m", "worker.cli.main", "exporter", "--port", "0"],
            directory / "exporter.log",
            WORKFLOW_REDIS_URL=url,
            WORKFLOW_NAMESPACE=namespace,
        )
        self.port = 0

    async def __aenter__(self) -> ExporterProcess:
        self.port = await endpoint_port(self)
        return self

    async def gauges(self) -> dict[str, float]:
        """Series, as exposed → value."""
        _, text = await http(self.port, "/metrics")
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
        return {series: float(value) for series, value in lines}


# --- Redis under an ACL -----------------------------------------------------------------------------


class RedisUnderAcl(Process):
    """A `server` program with the users of ops/redis/users.acl, and an admin to look at it with."""

    def __init__(self, directory: Path, server: str, users: str) -> None:
        self.port = free_port()
        acl = directory / "users.acl"
        acl.write_text(f"{users}user admin on nopass ~* &* +@all\n")
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory)]
        command = [server, *where, "--save", "", "--aclfile", str(acl)]
        super().__init__(command, directory / "redis.log")

    def url(self, user: str, password: str) -> str:
        return f"redis://{user}:{password}@127.0.0.1:{self.port}/0"

    async def __aenter__(self) -> RedisUnderAcl:
        def listening() -> bool:
            assert self.alive, self.log
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        await until("Redis listens", listening)
        return self


# --- Prometheus -------------------------------------------------------------------------------------


class Sample(NamedTuple):
    labels: dict[str, str]
    value: float


class Prometheus(Process):
    """Prometheus with the repository's alerts, scraping ports of this machine under the jobs of its
    configuration."""

    def __init__(self, directory: Path, targets: dict[str, list[int]]) -> None:
        self.port = free_port()
        config = directory / "prometheus.yml"  # JSON is YAML
        config.write_text(json.dumps(_config(targets)))
        options = {
            "config.file": config,
            "storage.tsdb.path": directory / "tsdb",
            "web.listen-address": f"127.0.0.1:{self.port}",
            "log.level": "warn",
        }
        command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
        super().__init__(command, directory / "prometheus.log")

    async def __aenter__(self) -> Prometheus:
        async def ready() -> bool:
            assert self.alive, self.log
            return (await http(self.port, "/-/ready"))[0] == 200

        await until("Prometheus is ready", ready)
        return self

    async def api(self, path: str) -> Any:
        status, text = await http(self.port, f"/api/v1/{path}")
        assert status == 200, text
        return json.loads(text)["data"]

    async def query(self, expression: str) -> list[Sample]:
        data = await self.api("query?" + urllib.parse.urlencode({"query": expression}))
        return [Sample(row["metric"], float(row["value"][1])) for row in data["result"]]


def _config(targets: dict[str, list[int]]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "1s"},
        "rule_files": [str(OPS / "prometheus" / "alerts.yml")],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            for job, ports in targets.items()
        ],
    }
