"""A body that goes past its loop to the outside is found out."""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import redis

from tests.core.player import Player, raised, returned
from worker import Workflows
from worker.runtime import audit

pytestmark = pytest.mark.usefixtures("no_body_is_left")

THREADS_ARE_AUDITED = sys.version_info >= (3, 12)
SLEEP_IS_AUDITED = sys.version_info >= (3, 13)


@pytest.fixture
def counted() -> Iterator[Counter[str]]:
    """Calls counted by a guard that lets them through; no guard is left behind."""
    counts: Counter[str] = Counter()
    audit.install(strict=False, count=lambda call: counts.update([call]))
    yield counts
    audit._guard = None


@pytest.fixture
def strict(counted: Counter[str]) -> None:
    audit.install(strict=True, count=lambda call: None)


def connect() -> None:
    with socket.socket() as free:
        free.connect(("127.0.0.1", 9))


def look_up() -> None:
    socket.getaddrinfo("localhost", 80)


def start_process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def start_shell() -> None:
    os.system("true")


def start_thread() -> None:
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()


def sleep() -> None:
    time.sleep(0.001)


CALLS = [
    (connect, "socket.connect()", True),
    (look_up, "socket.getaddrinfo()", True),
    (start_process, "subprocess.Popen()", True),
    (start_shell, "os.system()", True),
    (start_thread, "threading.Thread.start()", THREADS_ARE_AUDITED),
    (sleep, "time.sleep()", SLEEP_IS_AUDITED),
]
AUDITED = [pytest.param(do, call, id=call) for do, call, audited in CALLS if audited]


def body_that(do: Callable[[], None], times: int = 1) -> Player:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        for _ in range(times):
            do()
        return "done"

    return Player(renew)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(("do", "call"), AUDITED)
def test_when_strict_the_body_gets_an_error_that_names_call_line_and_cure(
    do: Callable[[], None], call: str
) -> None:
    error = raised(body_that(do))
    assert isinstance(error, RuntimeError)
    assert f"called {call} at {__file__}:" in str(error) and "in a step" in str(error)
    line = int(str(error).partition(f"{__file__}:")[2].partition(":")[0])
    assert 0 < line - do.__code__.co_firstlineno <= 3


def test_otherwise_it_is_counted_every_time_and_logged_once_per_place(
    counted: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "worker.body"):
        for _ in range(2):
            assert returned(body_that(look_up, times=3)) == "done"
    assert counted == {"socket.getaddrinfo()": 6}
    assert len(caplog.records) == 1 and "socket.getaddrinfo()" in caplog.text


@pytest.mark.usefixtures("strict")
def test_code_outside_a_body_is_free_to_do_it(counted: Counter[str]) -> None:
    look_up()
    start_shell()
    assert not counted


@pytest.mark.usefixtures("strict")
def test_a_body_gives_its_thread_back_unwatched() -> None:
    assert returned(body_that(lambda: None)) == "done"
    look_up()


def ask_redis() -> None:
    redis.Redis(host="127.0.0.1", port=9).ping()


@pytest.mark.usefixtures("strict")
def test_a_library_between_the_body_and_the_call_is_not_the_place_named() -> None:
    error = str(raised(body_that(ask_redis)))
    assert f"{__file__}:" in error and "site-packages" not in error


def test_a_process_that_is_watched_ends_without_a_word() -> None:
    program = "from worker.runtime import audit; audit.install(strict=True, count=print)"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert ended.stdout + ended.stderr == b""


def test_asking_costs_little_where_no_body_runs(counted: Counter[str]) -> None:
    """The hook sees every event of the process."""
    times = 20_000
    started = time.perf_counter()
    for _ in range(times):
        sys.audit("stepfleet.test")
    assert (time.perf_counter() - started) / times < 20e-6
