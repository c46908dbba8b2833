"""The program ``worker`` (also installed as ``stepfleet``).

Exit codes: 0 done · 1 it did not work out (a run failed, a server is away, something is not there) ·
2 it was called or configured wrongly.
"""

from __future__ import annotations

import os
import sys

import click

from .commands import Program
from .demo import demo
from .exporter import exporter
from .health import config, doctor, health
from .hooks import hooks
from .queues import queues
from .run import dev, run
from .runs import runs
from .start import start
from .top import top

_HASHING = {"run", "dev"}  # commands that execute bodies


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepfleet", prog_name="worker")
def cli() -> None:
    """Durable workflows for Python on the Redis you already run."""


for _command in (run, dev, demo, start, runs, hooks, queues, top, exporter, doctor, config, health):
    cli.add_command(_command)


def main() -> None:
    """Entry point of the console scripts."""
    if _HASHING & set(sys.argv[1:2]) and "PYTHONHASHSEED" not in os.environ:
        # Iteration over a set of strings must be the same in every worker; Python reads this at its start.
        arguments = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0"})
    cli(prog_name="worker")


if __name__ == "__main__":
    main()
