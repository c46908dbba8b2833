"""`worker dev` keeps a worker going, and the other commands find its server or are told of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.processes import APP, Process, until
from worker.cli.reload import next_pause

CLIENT = """
import asyncio
from worker import start
from app import seeded

async def main():
    print(await (await start(seeded)).return_value(timeout=20))

asyncio.run(main())
"""


@pytest.fixture
def dev(process: Process) -> Iterator[subprocess.Popen[str]]:
    """`worker dev` in the folder of `process`, which knows no server."""
    del process.environment["WORKFLOW_REDIS_URL"]
    with process.background("dev", "app:wf", "--metrics-port", "0") as running:
        yield running
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0


def test_a_worker_that_is_killed_is_started_again(process: Process, dev: subprocess.Popen[str]) -> None:
    first = worker_of(dev)
    os.kill(first, signal.SIGKILL)
    assert signal.strsignal(signal.SIGKILL) in until(dev, "ended by a signal")["message"]
    assert worker_of(dev) != first
    assert process.run("start", "app:seeded", "--wait", "--timeout", "20s").returncode == 0


def test_a_worker_that_is_killed_at_every_start_is_started_ever_more_rarely_and_at_once_after_a_change(
    process: Process, dev: subprocess.Popen[str]
) -> None:
    worker_of(dev)
    (process.folder / "app.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    until(dev, "a source file changed, restarting")
    for pause in ("in 1 s", "in 2 s"):
        assert pause in until(dev, "ended by a signal")["message"]
    (process.folder / "app.py").write_text(APP)
    until(dev, "a source file changed, restarting")
    os.kill(worker_of(dev), signal.SIGKILL)
    assert "in 1 s" in until(dev, "ended by a signal")["message"]
    worker_of(dev)


def test_the_pause_doubles_up_to_half_a_minute_and_is_short_again_for_a_worker_that_has_lived() -> None:
    pauses = [0]
    for _ in range(7):
        pauses.append(next_pause(pauses[-1], lived=0.5))
    assert pauses[1:] == [1, 2, 4, 8, 16, 30, 30]
    assert next_pause(30, lived=31) == 1


def test_a_worker_that_ends_by_itself_waits_for_a_change(
    process: Process, dev: subprocess.Popen[str]
) -> None:
    worker_of(dev)
    (process.folder / "app.py").write_text("this is no Python")
    assert "code 1" in until(dev, "waiting for a change")["message"]
    (process.folder / "app.py").write_text(APP)
    worker_of(dev)


def test_who_must_be_told_the_server_of_dev_is_told_its_url(
    process: Process, dev: subprocess.Popen[str]
) -> None:
    worker_of(dev)
    url = f"embedded://{process.folder.resolve()}/.stepfleet"
    refused = process.run("run", "app:wf")
    assert (refused.returncode, f"WORKFLOW_REDIS_URL={url}\n" in refused.stderr) == (2, True), refused.stderr
    assert f"WORKFLOW_REDIS_URL={url}\n" in client(process).stderr
    (shown,) = (
        row for row in json.loads(process.run("config", "--json").stdout) if row["variable"].endswith("URL")
    )
    assert (shown["value"], shown["source"]) == (url, "worker dev")
    assert "Python clients need the variable" in process.run("config").stderr
    process.environment["WORKFLOW_REDIS_URL"] = url
    assert client(process).stdout == "0\n"


def worker_of(dev: subprocess.Popen[str]) -> int:
    """Process id of the worker that says next that it has started."""
    return int(until(dev, "worker started")["id"].split("-")[-2])


def client(process: Process) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CLIENT],
        cwd=process.folder,
        env={**process.environment, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
