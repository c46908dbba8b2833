"""The process between an embedded server and whoever started it.

It runs the server as its child and reads a pipe whose other end only the starter holds. The
pipe closes when the starter ends in whatever way, SIGKILL included; the guardian then ends the
server, so no orphan is left. Starter and server never share a session: Ctrl-C reaches the
starter alone, which drains while the server still answers.

Run by path with `python -I -S`: it must start in a few milliseconds, so it imports nothing but
small standard modules, and nothing of this package.

    argv   socket path, temporary data directory or "", server command...
    stdin  the lifeline: end of file means the starter is gone or wants the server ended
    stdout one line, the server's process id
    stderr the server's log

An inherited file lock is held open by this process and by the server, so it is free again only
when both are gone.
"""

import contextlib
import os
import select
import signal
import sys

TERM_GRACE_SECONDS = 10.0


def main(argv: list[str]) -> int:
    socket_path, temporary_directory, *command = argv
    wakeup = _watch_signals()
    server = _spawn(command)
    os.write(1, f"{server}\n".encode())
    os.close(1)

    ended = _wait_for_either(server, wakeup)
    if not ended:
        _end(server, wakeup)
    _unlink(socket_path)
    # A server that died by itself keeps its data: the starter may want it back.
    if temporary_directory and not ended:
        import shutil  # only here: it costs more than everything else at start

        shutil.rmtree(temporary_directory, ignore_errors=True)
    return 0


def _watch_signals() -> int:
    """A readable descriptor that wakes on SIGCHLD and on signals meant to end us."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # The starter may have blocked signals in the thread that spawned us; masks are inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return read_end


def _spawn(command: list[str]) -> int:
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, 2, 1),
        ],
    )


def _wait_for_either(server: int, wakeup: int) -> bool:
    """Wait for the end of the server (True), or of the starter or an order to end (False)."""
    while True:
        readable, _, _ = select.select([0, wakeup], [], [])
        if _reaped(server):
            return True
        if 0 in readable and not os.read(0, 1):
            return False
        if wakeup in readable and set(os.read(wakeup, 64)) - {signal.SIGCHLD}:
            return False


def _end(server: int, wakeup: int) -> None:
    os.kill(server, signal.SIGTERM)
    while not _reaped(server):
        if not select.select([wakeup], [], [], TERM_GRACE_SECONDS)[0]:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            return
        os.read(wakeup, 64)


def _reaped(server: int) -> bool:
    return os.waitpid(server, os.WNOHANG)[0] == server


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
