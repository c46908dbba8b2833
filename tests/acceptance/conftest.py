"""A fleet of real worker processes for each test; at the end nothing may be left without a way forward."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.kit import Fleet
from world_redis.embedded import EmbeddedServer


@pytest.fixture
async def fleet(server: EmbeddedServer, namespace: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Fleet(server.url, namespace, tmp_path) as running:
        yield running


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    """A failing test shows what its workers said."""
    outcome = yield
    report = outcome.get_result()
    fleet = getattr(item, "funcargs", {}).get("fleet")
    if report.when == "call" and report.failed and isinstance(fleet, Fleet):
        for worker in fleet.workers:
            report.sections.append((f"worker {worker.pid}", worker.log[-8000:]))
