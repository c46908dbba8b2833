"""What the commands print: one JSON document, or tables that fit the terminal."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_json(value: Any) -> None:
    """One JSON document on standard output. What has no JSON form is shown as text."""
    click.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def json_line(value: Any) -> str:
    """The same without a space."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """As JSON knows it; whole numbers of any size stay numbers."""
    match value:
        case Enum():
            return _plain(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {key if isinstance(key, str) else str(key): _plain(item) for key, item in value.items()}
        case set() | frozenset():
            return [_plain(item) for item in sorted(value, key=repr)]
        case list() | tuple():
            return [_plain(item) for item in value]
        case datetime():
            return value.isoformat()
        case bytes():
            return value.decode(errors="replace")
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return str(value)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    empty: str,
    title: str = "",
    drop: Sequence[str] = (),
    one_line: bool = False,
) -> None:
    """A table for people; `empty` is what to say when there is nothing in it; for the rest see `Grid`. What
    does not fit even so makes long lines: an id is there to be copied."""
    listed = list(rows)
    if not listed:
        click.echo(empty)
        return
    screen = console()
    width = screen.width if screen.is_terminal else None
    grid = Grid.of(columns, listed, width=width, drop=drop, one_line=one_line)
    screen = console(at_least=grid.least)
    screen.print(grid.table(title, screen.width))
    if grid.left_out:
        screen.print(Text(f"left out: {', '.join(grid.left_out)} (a wider terminal or --json)", style="dim"))


def table_of(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str = "",
    width: int | None = None,
    drop: Sequence[str] = (),
) -> Table:
    """A table, fitted into `width` characters by leaving out columns of `drop`, the first one first."""
    return Grid.of(columns, list(rows), width=width, drop=drop).table(title, width or 0)


_TEXT = ("detail", "meaning", "value", "waits for")  # columns that may take several lines
_TEXT_LEAST = 8  # characters of such a column, whatever happens
_TEXT_WIDTH = 16, 31  # what others are dropped for: more for its longest word, up to the length of a run id
_GAP = 2  # between two columns


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a table as text. Ids, names, states and figures are never broken: where it is narrow,
    times lose their date or their seconds, empty columns go, then those named to be dropped, and only text
    is wrapped or cut."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    left_out: tuple[str, ...] = ()
    narrow: bool = False
    one_line: bool = False  # text is cut where it ends at the edge, not wrapped

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        width: int | None,
        drop: Sequence[str],
        one_line: bool = False,
    ) -> Grid:
        cells = [tuple(text_of(cell) for cell in row) for row in rows]
        whole = cls(tuple(columns), cells, one_line=one_line)
        if width is None or whole.wants <= width:
            return whole
        now = datetime.now(UTC)
        brief = [tuple(_brief(cell, now) for cell in row) for row in rows]
        grid = dataclasses.replace(whole, rows=brief, narrow=True)
        for number, column in enumerate(columns):
            if not any(row[number] for row in whole.rows):
                grid = grid._without(column)
        for column in drop:
            if grid.needs <= width:
                break
            if column in grid.columns:
                left_out = (*grid.left_out, column)
                grid = dataclasses.replace(grid._without(column), left_out=left_out)
        return grid

    @property
    def wants(self) -> int:
        """Its width when nothing is wrapped."""
        return self._total(self._width(number) for number in range(len(self.columns)))

    @property
    def needs(self) -> int:
        """The width in which its text can be read."""
        return self._total(self._readable(number) for number in range(len(self.columns)))

    @property
    def least(self) -> int:
        """The width below which more than text would be broken."""
        return self._total(self._unbroken(number) for number in range(len(self.columns)))

    def table(self, title: str, width: int) -> Table:
        """To be shown in so many characters."""
        table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
        table.header_style = "bold"
        for number, column in enumerate(self.columns):
            header = self._header(number)
            if column not in _TEXT:
                table.add_column(header, overflow="ellipsis", no_wrap=True)
            elif self.one_line:
                room = width - self.least + self._unbroken(number)
                table.add_column(header, overflow="ellipsis", no_wrap=True, max_width=room)
            else:
                table.add_column(header, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def _without(self, column: str) -> Grid:
        gone = self.columns.index(column)
        columns = self.columns[:gone] + self.columns[gone + 1 :]
        rows = [row[:gone] + row[gone + 1 :] for row in self.rows]
        return dataclasses.replace(self, columns=columns, rows=rows)

    def _unbroken(self, number: int) -> int:
        width = self._width(number)
        return min(width, _TEXT_LEAST) if self.columns[number] in _TEXT else width

    def _readable(self, number: int) -> int:
        width = self._width(number)
        if self.columns[number] not in _TEXT:
            return width
        least, most = _TEXT_WIDTH
        if self.one_line:
            return min(width, least)
        word = max((cell_len(word) for row in self.rows for word in row[number].split()), default=0)
        return min(width, max(least, min(word, most)))

    def _width(self, number: int) -> int:
        return max(self._cells(number), *(cell_len(word) for word in self._header(number).split("\n")))

    def _cells(self, number: int) -> int:
        return max((cell_len(line) for row in self.rows for line in row[number].split("\n")), default=0)

    def _header(self, number: int) -> str:
        """On several lines where that makes the column narrower."""
        column = self.columns[number]
        stacked = self.narrow and cell_len(column) > self._cells(number)
        return column.replace(" ", "\n") if stacked else column

    def _total(self, widths: Iterable[int]) -> int:
        return sum(widths) + _GAP * (len(self.columns) - 1)


def _brief(cell: Any, now: datetime) -> str:
    """A cell where there is little room: of a time of today the time alone, else day and minute."""
    if not isinstance(cell, datetime):
        return text_of(cell)
    return f"{cell:%H:%M:%S}" if cell.date() == now.date() else f"{cell:%m-%d %H:%M}"


def console(*, at_least: int = 0) -> Console:
    """For a terminal as wide as it is; for a file or a pipe wide enough that nothing is cut."""
    made = Console(highlight=False, markup=False, emoji=False)
    width = max(at_least, made.width if made.is_terminal else 200)
    return made if made.width == width else Console(highlight=False, markup=False, emoji=False, width=width)


def cut(text: str, most: int = 120) -> str:
    """At most so many characters, and one line."""
    line = " ".join(text.splitlines())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def counted(number: int, what: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def text_of(value: Any) -> str:
    match value:
        case None | "":
            return ""
        case bool():
            return "yes" if value else ""
        case float():
            return f"{value:.1f}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        case str():
            return value
        case dict():
            return " ".join(f"{key}={json_line(item)}" for key, item in value.items() if item != "")
        case _:
            return str(value)
