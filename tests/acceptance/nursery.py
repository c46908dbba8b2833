"""Worker processes that start at once: forked from one process that has imported everything.

Each is a process of its own that runs the ordinary command line; only the half second of imports is shared.
Run as a program it is the parent: it reads one request a line and answers each with one line.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]


# --- from the tests ---------------------------------------------------------------------------------


class Nursery:
    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.nursery"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Run ``worker`` with these arguments; the process id."""
        pid: int = self._ask(start=arguments, environment=environment, log=str(log))
        return pid

    def exit_code(self, pid: int) -> int | None:
        """None while it lives; negative when a signal ended it."""
        code: int | None = self._ask(poll=pid)
        return code

    def _ask(self, **request: Any) -> Any:
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        return json.loads(self._parent.stdout.readline())


@functools.cache
def nursery() -> Nursery:
    """The one of this test process; it ends when its standard input does."""
    return Nursery()


# --- in the parent ----------------------------------------------------------------------------------


def main() -> None:
    for name in ("worker.cli.main", "worker.cli.run", "tests.acceptance.app"):
        importlib.import_module(name)
    codes: dict[int, int | None] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer: int | None = _fork(**request)
            assert answer is not None
            codes[answer] = None
        else:
            answer = codes[request["poll"]] = _poll(request["poll"], codes)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid, code in codes.items():
        if code is None and _poll(pid, codes) is None:
            os.kill(pid, signal.SIGKILL)


def _poll(pid: int, codes: Mapping[int, int | None]) -> int | None:
    if codes[pid] is not None:
        return codes[pid]
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _fork(start: Sequence[str], environment: Mapping[str, str], log: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    _be_a_worker(start, environment, log)


def _be_a_worker(arguments: Sequence[str], environment: Mapping[str, str], log: str) -> NoReturn:
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for own, standard in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(own, standard)
        os.environ.update(environment)
        random.seed()

        from worker.cli.main import cli

        cli.main(args=list(arguments), prog_name="worker")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
