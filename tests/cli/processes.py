"""Commands of the program as processes, in a folder of their own with an application in it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

APP = """
import asyncio, os, time, logging
from worker.sdk.registry import Workflows

wf = Workflows()
log = logging.getLogger("app")

@wf.step
async def seed() -> str:
    log.warning("hello from the application")
    return os.environ.get("PYTHONHASHSEED", "")

@wf.step
def hang(seconds: float) -> None:
    print("hanging", flush=True)
    time.sleep(seconds)

@wf.workflow
async def seeded() -> str:
    return await seed()

@wf.workflow
async def hanging(seconds: float) -> None:
    await hang(seconds)
"""


class Process:
    """A command of the program, in a folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    @contextmanager
    def background(self, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        # As the console script does: the folder of the script is on the path, not the working one.
        return [sys.executable, "-P", "-m", "worker.cli.main", *arguments]


def until(process: subprocess.Popen[str], message: str) -> dict[str, Any]:
    """The first record of this message."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if message in line:
            try:
                record: dict[str, Any] = json.loads(line)
            except ValueError:
                record = {"message": line}
            return record
    raise AssertionError(f"{message!r} was not logged:\n{''.join(seen)}")
