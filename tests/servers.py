"""Servers and tools that tests run for real.

`STEPFLEET_TEST_SERVER` chooses the server of the whole run: `embedded` (default) or
`redis-server` (the program on PATH).
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from world_redis.embedded import EmbeddedServer, EmbeddedServerError, find_binary

SERVER_VARIABLE = "STEPFLEET_TEST_SERVER"
SERVERS: Mapping[str, str | None] = {"embedded": None, "redis-server": "redis-server"}

MISSING_TOOL = "missing tool: "


def server_binary() -> str:
    """Path of the server program this run tests with; skips the test when it is not there."""
    kind = os.environ.get(SERVER_VARIABLE, "embedded")
    if kind not in SERVERS:
        raise pytest.UsageError(f"{SERVER_VARIABLE}={kind!r}: use one of {', '.join(SERVERS)}")
    name = SERVERS[kind]
    if name is not None:
        return require_tool(name)
    try:
        return str(find_binary())
    except EmbeddedServerError:
        skip_missing_tool("valkey-server")


def start_test_server(
    directory: Path | None = None, *, config: Mapping[str, str] | None = None
) -> EmbeddedServer:
    """A private server of the kind this run tests with; the caller stops it."""
    return EmbeddedServer.start(directory, binary=server_binary(), config=config)


def require_tool(name: str) -> str:
    """Path of a program on PATH; skips the test when it is not there."""
    found = shutil.which(name)
    if found is None:
        skip_missing_tool(name)
    return found


def skip_missing_tool(name: str) -> NoReturn:
    """Skip for want of a program: an error under `--require-all`, and listed at the end."""
    pytest.skip(MISSING_TOOL + name)
