"""What the commands share: errors as exit codes, "did you mean", JSON or tables, a client."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

import click
import orjson
from rich.console import Console
from rich.table import Table

from world_redis.embedded import EmbeddedServerError
from world_redis.errors import StoreError

from ..sdk.client import Client
from ..sdk.errors import WorkflowError
from ..settings import Settings, SettingsError

T = TypeVar("T")


class Failure(click.ClickException):
    """It did not work out: exit code 1."""

    exit_code = 1


class Misconfigured(click.ClickException):
    """A setting cannot be used: exit code 2, without the usage of the command."""

    exit_code = 2


class Program(click.Group):
    """A group whose commands answer errors with one sentence and the right exit code."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f" Did you mean `{ctx.command_path} {near[0]}`?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            raise Misconfigured(str(error)) from error
        except (WorkflowError, StoreError, EmbeddedServerError) as error:
            raise Failure(str(error)) from error


def refuse(message: str) -> NoReturn:
    """Called wrongly: exit code 2."""
    raise click.UsageError(message)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


def with_client(
    function: Callable[..., Coroutine[Any, Any, T]],
) -> Callable[..., T]:
    """Run an async command with a connected client as its first argument. The decorator next to it."""

    def command(*args: Any, **kwargs: Any) -> T:
        async def run() -> T:
            async with Client.from_settings(Settings.load()) as client:
                return await function(client, *args, **kwargs)

        return asyncio.run(run())

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


# --- output -------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """One JSON document on standard output. What has no JSON form is shown as text."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
    click.echo(orjson.dumps(value, default=_plain, option=options).decode())


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, title: str = ""
) -> None:
    """A table for people; `empty` is what to say when there is nothing in it."""
    listed = list(rows)
    if not listed:
        click.echo(empty)
        return
    console().print(table_of(columns, listed, title=title))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> Table:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("run", "slot", "id"))
    for row in rows:
        table.add_row(*(text_of(cell) for cell in row))
    return table


def console() -> Console:
    """For a terminal as wide as it is; for a file or a pipe wide enough that nothing is cut."""
    made = Console(highlight=False, markup=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, width=200)


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
            return " ".join(f"{key}={text_of(item) or item!r}" for key, item in value.items() if item != "")
        case _:
            return str(value)
