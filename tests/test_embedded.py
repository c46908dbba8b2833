"""One private server per directory, gone with its starter, back with its data."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import server_binary, start_test_server
from world_redis import embedded
from world_redis.embedded import EmbeddedServer, EmbeddedServerError

REPOSITORY = Path(__file__).parents[1]

# A starter of its own process: says what it has, then waits to be told to end.
STARTER = """
import sys
from pathlib import Path
from world_redis.embedded import EmbeddedServer
server = EmbeddedServer.start(Path(sys.argv[1]), binary=sys.argv[2])
print(server.pid, server.url, int(server.started_here), flush=True)
sys.stdin.read()
"""


class Starter:
    """Another process that started, or attached to, the server of a directory."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(directory), server_binary()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            start_new_session=True,  # its process group stands for a terminal's foreground job
            text=True,
        )

    def said(self) -> tuple[int, str, bool]:
        """(server's process id, url, whether this process started it)."""
        assert self.process.stdout is not None
        pid, url, started = self.process.stdout.readline().split()
        return int(pid), url, started == "1"

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Callable[[], Starter]]:
    started: list[Starter] = []

    def start() -> Starter:
        started.append(Starter(tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.end()


def command(server_url: str, *words: str) -> bytes:
    """Send one inline command; the first line of the answer, or of its bulk string."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server_url.removeprefix("unix://"))
        connection.sendall(" ".join(words).encode() + b"\r\n")
        with connection.makefile("rb") as answer:
            line = answer.readline()
            return (answer.readline() if line.startswith(b"$") else line).strip()


def wait_until(promised: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not promised():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- starting ----------------------------------------------------------------------------------


def test_it_answers_on_a_private_socket_alone() -> None:
    with start_test_server() as server:
        assert command(server.url, "PING") == b"+PONG"
        path = Path(server.url.removeprefix("unix://"))
        assert len(os.fsencode(path)) <= 104
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("setting", "value"),
    [("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("appendfsync", "everysec")],
)
def test_it_keeps_what_it_is_given(server: EmbeddedServer, setting: str, value: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.url.removeprefix("unix://"))
        connection.sendall(f"CONFIG GET {setting}\r\n".encode())
        assert value.encode() in connection.recv(4096)


def test_it_starts_in_a_blink() -> None:
    fastest = 1.0
    for _ in range(3):  # the machine may be busy once
        began = time.perf_counter()
        with start_test_server():
            fastest = min(fastest, time.perf_counter() - began)
    assert fastest < 0.15


def test_a_directory_with_a_long_name_and_spaces_is_no_trouble(tmp_path: Path) -> None:
    directory = tmp_path / "a name with spaces" / ("long" * 40)
    with start_test_server(directory) as server:
        assert command(server.url, "PING") == b"+PONG"


def test_settings_of_the_caller_win() -> None:
    with start_test_server(config={"appendfsync": "always", "save": "900 1"}) as server:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(server.url.removeprefix("unix://"))
            connection.sendall(b"CONFIG GET appendfsync\r\n")
            assert b"always" in connection.recv(4096)


def test_a_server_that_does_not_come_up_is_reported_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="no-such-setting"):
        start_test_server(tmp_path, config={"no-such-setting": "1"})
    with start_test_server(tmp_path) as server:  # and the directory is free again
        assert command(server.url, "PING") == b"+PONG"


def test_a_missing_program_is_named_with_the_cure() -> None:
    with pytest.raises(EmbeddedServerError, match=r"no-such-program.*stepfleet\[embedded\]"):
        EmbeddedServer.start(binary="no-such-program")


def test_without_any_program_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded, "_packaged_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"install `stepfleet\[embedded\]`"):
        embedded.find_binary()


def test_a_server_on_path_is_taken_when_it_is_recent_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded, "_packaged_binary", lambda: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for name, version in (("valkey-server", "6.2.1"), ("redis-server", "7.0.15")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho 'Server v={version} sha=0'\n")
        program.chmod(0o755)
    assert embedded.find_binary() == tmp_path / "redis-server"


# --- one per directory -------------------------------------------------------------------------


def test_a_second_start_attaches_and_its_stop_leaves_the_server_alone(tmp_path: Path) -> None:
    with start_test_server(tmp_path) as first:
        with start_test_server(tmp_path) as second:
            assert (second.pid, second.url) == (first.pid, first.url)
            assert (first.started_here, second.started_here) == (True, False)
        assert command(first.url, "PING") == b"+PONG"
    assert is_gone(first.pid)


def test_processes_that_start_a_directory_at_once_share_one_server(
    starter: Callable[[], Starter],
) -> None:
    said = [one.said() for one in [starter() for _ in range(4)]]
    assert len({(pid, url) for pid, url, _ in said}) == 1
    assert sum(started for _, _, started in said) == 1


def test_only_the_starter_may_restart(tmp_path: Path) -> None:
    with start_test_server(tmp_path), start_test_server(tmp_path) as attached:
        with pytest.raises(EmbeddedServerError, match="process that started"):
            attached.restart()


# --- the end of it -----------------------------------------------------------------------------


def test_stop_leaves_no_process_no_socket_and_no_temporary_directory() -> None:
    server = start_test_server()
    server.stop()
    server.stop()
    assert is_gone(server.pid)
    assert not Path(server.url.removeprefix("unix://")).exists()
    assert not server.directory.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_starter_killed_leaves_no_orphan(
    starter: Callable[[], Starter], tmp_path: Path, number: signal.Signals
) -> None:
    one = starter()
    pid, url, _ = one.said()
    assert command(url, "SET", "kept", "yes") == b"+OK"
    one.process.send_signal(number)
    wait_until(lambda: is_gone(pid))
    with start_test_server(tmp_path) as server:
        assert command(server.url, "GET", "kept") == b"yes"


def test_ctrl_c_reaches_the_starter_and_not_the_server(starter: Callable[[], Starter]) -> None:
    one = starter()
    pid, url, _ = one.said()
    # What a terminal does: SIGINT to the whole foreground group. The server must be outside it.
    assert os.getpgid(pid) != os.getpgid(one.process.pid)
    assert os.getsid(pid) != os.getsid(one.process.pid)
    assert command(url, "PING") == b"+PONG"
    os.killpg(one.process.pid, signal.SIGINT)
    wait_until(lambda: is_gone(pid))  # it ends when the starter has ended


def test_a_forked_child_neither_ends_nor_outlives_the_server(tmp_path: Path) -> None:
    server = start_test_server(tmp_path)
    release, hold = os.pipe()
    child = os.fork()
    if child == 0:
        server.stop()
        os.close(hold)
        os.read(release, 1)  # lives on until the parent lets it go
        os._exit(0)
    os.close(release)
    try:
        assert command(server.url, "PING") == b"+PONG"
        server.stop()
        assert is_gone(server.pid)
    finally:
        os.close(hold)
        os.waitpid(child, 0)


# --- after a crash -----------------------------------------------------------------------------


def test_a_killed_server_comes_back_with_its_data_and_its_url(
    private_server: EmbeddedServer,
) -> None:
    url, pid = private_server.url, private_server.pid
    assert command(url, "SET", "kept", "yes") == b"+OK"
    private_server.kill()
    with pytest.raises(OSError, match=r"refused|No such file"):
        command(url, "PING")
    private_server.restart()
    assert private_server.url == url
    assert private_server.pid != pid
    assert command(url, "GET", "kept") == b"yes"


def test_a_running_server_can_be_restarted(private_server: EmbeddedServer) -> None:
    pid = private_server.pid
    assert command(private_server.url, "SET", "kept", "yes") == b"+OK"
    private_server.restart()
    assert is_gone(pid)
    assert command(private_server.url, "GET", "kept") == b"yes"


def test_a_stale_record_and_socket_do_not_stand_in_the_way(tmp_path: Path) -> None:
    with start_test_server(tmp_path) as server:
        socket_path = Path(server.url.removeprefix("unix://"))
    socket_path.write_text("not a socket")
    record = {"socket": str(socket_path), "pid": os.getpid()}
    (tmp_path / "server.json").write_text(json.dumps(record))
    with start_test_server(tmp_path) as server:
        assert server.started_here
        assert command(server.url, "PING") == b"+PONG"


def test_the_record_names_the_running_server(tmp_path: Path) -> None:
    with start_test_server(tmp_path) as server:
        record = json.loads((tmp_path / "server.json").read_text())
        assert record == {"socket": server.url.removeprefix("unix://"), "pid": server.pid}
