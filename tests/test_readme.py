"""The README tells the truth: its example is the file it names, and it runs."""

import asyncio
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from worker import Client
from worker.runtime.worker import Worker
from worker.settings import Settings

ROOT = Path(__file__).parents[1]


def test_the_example_is_the_file_it_names() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert (ROOT / "examples" / "renew.py").read_text() in blocks


async def test_the_example_runs(redis_url: str, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    from examples.renew import renew, wf

    settings = Settings.load(redis_url=redis_url, namespace=namespace)
    worker = Worker(wf, settings)
    running = asyncio.create_task(worker.run())
    async with Client(redis_url, settings=settings) as client:
        run = await client.start(renew, "cus_123")
        assert await run.return_value(timeout=20) == "receipt-cus_123-990"
    worker.drain()
    assert await running == 0
    assert "to cus_123: thank you, receipt-cus_123-990" in capsys.readouterr().out


def test_the_ways_to_install_it_name_what_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ways = re.findall(r"pip install '(\./)?([\w-]+)\[(\w+)\]'", (ROOT / "README.md").read_text())
    assert {clone for clone, _, _ in ways} == {"", "./"}
    assert {name for _, name, _ in ways} == {project["name"]}
    assert {extra for _, _, extra in ways} <= set(project["optional-dependencies"])


def test_the_first_make_says_at_once_what_it_does(tmp_path: Path) -> None:
    for name in ("python3.14", "python3.13", "python3.12", "python3.11", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\necho Python 3.10.1; exit 1\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "requirements" / "bootstrap"), ".venv", "runtime"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    first, *rest = done.stderr.splitlines()
    assert (done.returncode, first) == (1, "making .venv ...")
    assert "Python 3.11 or newer is needed and" in rest[-1]


def test_the_reading_path_exists() -> None:
    text = (ROOT / "README.md").read_text()
    path = re.search(r"## Reading the code(.*?)\n## ", text, re.DOTALL)
    assert path is not None
    files = re.findall(r"`((?:worker|world_redis)/[\w/.]+)`", path[1])
    assert len(files) >= 5
    assert [name for name in files if not (ROOT / name).exists()] == []
