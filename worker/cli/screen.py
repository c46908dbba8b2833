"""What ``worker demo`` shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..sdk.history import StepInfo
from .fleet import pid_of
from .inspect import Inspection
from .output import console, table_of
from .runs import short

_STYLES = {"running": "cyan", "completed": "green", "failed": "red", "retrying": "yellow", "created": "dim"}


class Screen:
    def __init__(self) -> None:
        self._console: Console = console()
        self._live: Live | None = None
        self._began = time.monotonic()
        self._said: dict[str, str] = {}  # step id → its last line, for plain output

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep the table of steps at the bottom while inside."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as self._live:
            yield
        self._live = None

    def say(self, text: str) -> None:
        self._console.print(f"[{time.monotonic() - self._began:5.1f} s] {text}", soft_wrap=True)

    def print(self, what: Any) -> None:
        self._console.print(what)

    def show(self, seen: Inspection, names: Mapping[int, str]) -> None:
        """The run as it is now; `names`: process id → worker."""
        for step in seen.steps:
            line = self._line(step, seen, names)
            if self._said.get(step.id) != line:
                self._said[step.id] = line
                if self._live is None:
                    self.say(line)
        rescue = f"rescue: {seen.rescue}"
        if self._live is not None:
            self._live.update(Group(Text(), self._table(seen, names), Text(rescue, style="dim")))
        elif self._said.get("rescue") != (word := rescue.partition(",")[0]):
            self._said["rescue"] = word
            self.say(rescue)

    def _line(self, step: StepInfo, seen: Inspection, names: Mapping[int, str]) -> str:
        owner = _owner(step, seen, names)
        by = f" on {owner}, epoch {step.epoch}" if owner else ""
        error = f" after {step.error}" if step.state == "retrying" else ""
        return f"{short(step.id)} {step.name}: {step.state}{by}{error}"

    def _table(self, seen: Inspection, names: Mapping[int, str]) -> Table:
        rows = [
            (
                short(step.id),
                step.name,
                step.state,
                _owner(step, seen, names),
                f"{step.lease_left:.1f} s" if step.state == "running" else "",
                step.epoch or "",
                step.starts,
                step.crashes,
            )
            for step in seen.steps
        ]
        columns = ("step", "name", "state", "owner", "lease left", "epoch", "starts", "crashes")
        drop = ("crashes", "starts", "epoch", "lease left")
        table = table_of(columns, rows, width=self._console.width, drop=drop)
        for row, step in zip(table.rows, seen.steps, strict=True):
            row.style = _STYLES.get(step.state, "")
        return table


def _owner(step: StepInfo, seen: Inspection, names: Mapping[int, str]) -> str:
    if step.state != "running":
        return ""
    worker = seen.workers.get(step.owner)
    if worker is None:
        return "nobody"
    return f"worker {names.get(pid_of(worker), worker)} ({step.owner}#{step.owner_number})"
