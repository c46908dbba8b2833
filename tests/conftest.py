"""Fixtures for everyone. Tests share one server; each has a key prefix of its own."""

import os
import secrets
from collections.abc import Generator, Iterator

import pytest

from tests.servers import MISSING_TOOL, require_tool, start_test_server
from world_redis.embedded import EmbeddedServer

TOOLS_OF_MARKER = {
    "needs_redis_server": ("redis-server",),
    "needs_prometheus": ("prometheus", "promtool"),
}


# --- servers and keys --------------------------------------------------------------------------


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """The server of the whole run. Not to be killed, flushed or reconfigured."""
    with start_test_server() as running:
        yield running


@pytest.fixture(scope="session")
def redis_url(server: EmbeddedServer) -> str:
    """URL of the shared server."""
    return server.url


@pytest.fixture
def namespace() -> str:
    """A key prefix no other test uses, so nothing has to be flushed."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def private_server() -> Iterator[EmbeddedServer]:
    """A server of this test alone, free to kill and restart."""
    with start_test_server() as running:
        yield running


# --- the run -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-all",
        action="store_true",
        help="a test skipped for a missing tool is a failure",
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ["WORKFLOW_STRICT"] = "1"
    # A shell that points at a live deployment must not lend its Redis to the tests.
    os.environ.pop("WORKFLOW_REDIS_URL", None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, tools in TOOLS_OF_MARKER.items():
        if item.get_closest_marker(marker) is not None:
            for tool in tools:
                require_tool(tool)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    missing = _missing_tool(report)
    if missing is not None and item.config.getoption("--require-all"):
        report.outcome = "failed"
        report.longrepr = f"{MISSING_TOOL}{missing} (required by --require-all)"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    for report in skipped:
        missing = _missing_tool(report)
        if missing is not None:
            terminalreporter.write_line(f"NOT TESTED, {missing} is missing: {report.nodeid}")


def _missing_tool(report: pytest.TestReport) -> str | None:
    """The tool a skipped test asked for; None for any other report."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return None
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    return reason.removeprefix(MISSING_TOOL) if reason.startswith(MISSING_TOOL) else None
