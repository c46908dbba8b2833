"""What a server says when it cannot serve a call now, but will: wait, and send the same call again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.lua.kit import A, StoreKit, run_message
from tests.lua.proxy import Proxy
from world_redis.errors import ScriptError
from world_redis.ids import new_run_id
from world_redis.world import RedisWorld


class Grumbling(Proxy):
    """Puts an error in the place of the next answers to scripts, though the server has done as asked: harsher
    than a real refusal, because the call that is sent again has already been carried out."""

    def __init__(self, target: str, directory: Path) -> None:
        super().__init__(target, directory)
        self.errors: list[str] = []
        self._script = False  # the latest request was one

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if not answers:
                    self._script = b"EVALSHA" in data
                elif self._script and self.errors:
                    data = f"-{self.errors.pop()}\r\n".encode()
                writer.write(data)
                await writer.drain()


@pytest.fixture
async def proxy(redis_url: str, tmp_path: Path) -> AsyncIterator[Grumbling]:
    async with Grumbling(redis_url, tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    "error",
    [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "MOVED 866 127.0.0.1:7002",
        "ASK 866 127.0.0.1:7002",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "NOREPLICAS Not enough good replicas to write.",
    ],
    ids=lambda error: error.split()[0],
)
async def test_a_call_waits_and_goes_on(proxy: Grumbling, namespace: str, error: str) -> None:
    async with RedisWorld(proxy.url, namespace=namespace, patience=10) as world:
        kit = StoreKit(world, proxy.url)
        session = await kit.session()
        proxy.errors = [error, error]
        reply = await session.inline("s1")
        assert (reply.answer, proxy.errors) == (A.OK, [])
        assert await kit.types(session.run_id) == [
            "run_created",
            "run_started",
            "step_created:s1",
            "step_started:s1",
        ]
        assert await kit.breaches() == []


async def test_any_other_error_is_a_bug_and_said_at_once(proxy: Grumbling, namespace: str) -> None:
    async with RedisWorld(proxy.url, namespace=namespace, patience=10) as world:
        kit = StoreKit(world, proxy.url)
        await kit.start()
        proxy.errors = ["ERR user_script:7: Script attempted to access nonexistent global variable 'x'"]
        run_id = new_run_id(0)
        with pytest.raises(ScriptError, match="nonexistent global"):
            await kit.runs.start(run_id, run_message(run_id), b"")
