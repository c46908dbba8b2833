"""What the commands share: errors as exit codes, "did you mean", a client, JSON or tables."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.table import Table

from world_redis.embedded import EmbeddedServerError
from world_redis.errors import AccessRefused, ScriptError, StoreError, StoreUnavailable

from ..addresses import resolve, running_server
from ..fleet import FleetReader
from ..sdk.client import Client
from ..sdk.errors import WorkflowError
from ..settings import Settings, SettingsError, redact_url, variable_of

T = TypeVar("T")

DEV_DATA = ".stepfleet"  # where `worker dev` keeps its server's data
PATIENCE = 5.0  # seconds a command waits for a server that is away: a person looks on


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


# --- the server ---------------------------------------------------------------------------------


def client_settings() -> Settings:
    """The settings of a command that asks a server: without a URL, the one `worker dev` has started here."""
    settings = Settings.load()
    if settings.redis_url:
        return settings
    url = running_server(Path(DEV_DATA))
    if url is None:
        return settings  # its `url` says what is missing
    click.echo(f"using the server of `worker dev` in ./{DEV_DATA}: WORKFLOW_REDIS_URL is not set", err=True)
    return settings.model_copy(update={"redis_url": url})


@asynccontextmanager
async def connected(settings: Settings, *, namespace: str | None = None) -> AsyncIterator[Client]:
    """A client for one command."""
    with naming_the_server(settings), waiting_quietly():
        async with Client.from_settings(settings, namespace=namespace, patience=PATIENCE) as client:
            yield client


@contextmanager
def naming_the_server(settings: Settings) -> Iterator[None]:
    """What the server is to blame for says which server that is."""
    try:
        yield
    except (StoreUnavailable, AccessRefused, ScriptError) as error:
        raise Failure(f"{error} ({variable_of('redis_url')}={redact_url(settings.url)})") from error


@contextmanager
def fleet_reader() -> Iterator[FleetReader]:
    """A view of the namespace that the settings name."""
    settings = client_settings()
    url, server = resolve(settings.url)
    try:
        with naming_the_server(settings):
            yield FleetReader(url, namespace=settings.namespace, partitions=settings.partitions)
    finally:
        if server is not None:
            server.stop()


@contextmanager
def waiting_quietly() -> Iterator[None]:
    """Inside, every reason to wait for the server is said once."""
    store, once = logging.getLogger("worker.store"), _Once()
    store.addFilter(once)
    try:
        yield
    finally:
        store.removeFilter(once)


class _Once(logging.Filter):
    """Lets a message through the first time."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        new = text not in self._said
        self._said.add(text)
        return new


def with_client(
    function: Callable[..., Coroutine[Any, Any, T]],
) -> Callable[..., T]:
    """Run an async command with a connected client as its first argument. The decorator next to it."""

    def command(*args: Any, **kwargs: Any) -> T:
        async def run() -> T:
            async with connected(client_settings()) as client:
                return await function(client, *args, **kwargs)

        return asyncio.run(run())

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


# --- output -------------------------------------------------------------------------------------


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
