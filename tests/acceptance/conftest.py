"""A fleet of real worker processes for each test; at the end nothing may be left without a way forward."""

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from tests.acceptance.kit import Fleet
from tests.partition import read_partition
from world_redis.embedded import EmbeddedServer
from world_redis.liveness import check


@pytest.fixture
async def fleet(server: EmbeddedServer, namespace: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Fleet(server.url, namespace, tmp_path) as running:
        yield running
        running.kill_all()
        assert check(await read_partition(running.world, 0, logs=True, finished=True)) == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test shows what its workers said."""
    report = yield
    fleet = getattr(item, "funcargs", {}).get("fleet")
    if report.when == "call" and report.failed and isinstance(fleet, Fleet):
        for worker in fleet.workers:
            report.sections.append((f"worker {worker.pid}", worker.log[-8000:]))
    return report
