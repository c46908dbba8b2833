"""A server that is away is reported once, then rarely."""

import logging
import math
import signal
import subprocess

import pytest

from tests.cli.processes import Process, until
from worker.cli.commands import waiting_quietly


@pytest.mark.parametrize(("again", "times"), [(math.inf, 1), (30, 1), (0, 3)])
def test_a_reason_is_said_again_when_its_time_has_passed(
    again: float, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = logging.getLogger("worker.store")
    with waiting_quietly(again):
        for _ in range(3):
            store.warning("waiting for Redis: %s", "it loads")
        store.warning("waiting for Redis: it is full")
    assert caplog.messages.count("waiting for Redis: it loads") == times
    assert "waiting for Redis: it is full" in caplog.messages


def test_a_worker_without_a_server_says_so_once(process: Process) -> None:
    process.environment["WORKFLOW_REDIS_URL"] = "redis://127.0.0.1:1/0"
    with process.background("run", "app:wf", "--metrics-port", "0") as worker:
        until(worker, "waiting for Redis")
        with pytest.raises(subprocess.TimeoutExpired):  # it tries again after 0.6 s, 1.3 s, 2 s
            worker.wait(2.5)
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=20)[1]
    assert worker.returncode == 0 and "waiting for Redis" not in said
