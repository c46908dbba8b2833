"""`worker demo` as a newcomer runs it, and what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Process, until

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def mark() -> str:
    """A variable every process of the demo inherits, so that leftovers are found."""
    return f"DEMO_TEST_{os.getpid()}_{time.monotonic_ns()}"


def start(mark: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), mark: "1", "WORKFLOW_PARTITIONS": "7"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "worker.cli.main", "demo"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def leftovers(mark: str) -> Iterator[int]:
    """Processes that carry the mark."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{mark}=1".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                continue


def until_gone(mark: str) -> None:
    end = time.monotonic() + 10
    while left := list(leftovers(mark)):
        assert time.monotonic() < end, f"still running: {left}"
        time.sleep(0.05)


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")


@needs_proc
@pytest.mark.slow
def test_the_demo_tells_the_whole_story_and_leaves_nothing(mark: str, tmp_path: Path) -> None:
    began = time.monotonic()
    demo = start(mark, tmp_path)
    said, _ = demo.communicate(timeout=60)
    assert demo.returncode == 0, said
    assert time.monotonic() - began < 60
    for part in (
        "The lease is 3 s",
        "KILL -9 worker",
        "owned recovery",
        "has taken over",
        "Approving as `ann`",
        "Result: 'order 4711 shipped, approved by ann'",
        "run_completed",
        "workflow_inline_owned_recoveries_total 1",
        """hooks resume TOKEN '{"by": "ann"}'""",
    ):
        assert part in said, said
    until_gone(mark)


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("sign", ["A private server", "Order started", "KILL -9"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_at_any_moment_leaves_nothing(
    mark: str, tmp_path: Path, sign: str, number: signal.Signals
) -> None:
    demo = start(mark, tmp_path)
    assert demo.stdout is not None
    for line in demo.stdout:
        if sign in line:
            break
    demo.send_signal(number)
    said, _ = demo.communicate(timeout=30)
    assert demo.returncode == 130, said
    until_gone(mark)


def test_the_order_of_the_demo_runs_from_a_copy(process: Process) -> None:
    (process.folder / "shop.py").write_text((REPOSITORY / "worker" / "demo.py").read_text())
    with process.background("run", "shop:wf", "--metrics-port", "0") as worker:
        assert until(worker, "offers")["message"] == "shop:wf offers 1 workflow and 3 steps"
        until(worker, "worker started")


@needs_proc
@pytest.mark.slow
def test_a_demo_that_is_killed_leaves_nothing(mark: str, tmp_path: Path) -> None:
    demo = start(mark, tmp_path)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "Order started" in line:
            break
    demo.kill()
    demo.communicate(timeout=30)
    until_gone(mark)
