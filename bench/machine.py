"""What was measured on, and with what."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from redis.asyncio import Redis

from world_redis.embedded import EmbeddedServer


async def describe() -> dict[str, str]:
    with EmbeddedServer.start() as server:
        client = Redis.from_url(server.url)
        try:
            said = await client.info("server")
            settings = await client.config_get("append*", "save")
        finally:
            await client.aclose()
    name, number = said.get("server_name", "redis"), said.get("valkey_version") or said["redis_version"]
    return {
        "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "load average at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": platform.platform(),
        "Python": platform.python_version(),
        "server": f"{name} {number}, over a Unix socket",
        "persistence": ", ".join(f"{key} {settings[key]}" for key in ("appendonly", "appendfsync")),
        "redis-py": version("redis"),
        "stepfleet": _own_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def _own_version() -> str:
    try:
        return version("stepfleet")
    except PackageNotFoundError:  # run from the tree
        return "not installed"
