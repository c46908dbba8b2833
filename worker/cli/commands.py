"""What the commands share: errors as exit codes, "did you mean", the server, a client."""

from __future__ import annotations

import asyncio
import difflib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from world_redis.embedded import EmbeddedServerError
from world_redis.errors import AccessRefused, ScriptError, StoreError, StoreUnavailable

from ..addresses import DEV_DATA, resolve, running_server
from ..fleet import FleetReader
from ..sdk.client import Client
from ..sdk.errors import WorkflowError
from ..sdk.texts import plain_text
from ..settings import Settings, SettingsError, redact_url, variable_of

T = TypeVar("T")

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


def checked_queue(ctx: click.Context, param: click.Parameter, value: T) -> T:
    """Callback of an option that names a queue, or several: any text that a key can end with."""
    names = value if isinstance(value, tuple) else () if value is None else (value,)
    try:
        for name in names:
            plain_text(name, "queue")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


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
    with naming_the_server(settings), waiting_quietly(math.inf):
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
def waiting_quietly(again: float) -> Iterator[None]:
    """Inside, a reason to wait for the server is said once, and once more every `again` seconds."""
    store, rarely = logging.getLogger("worker.store"), _Rarely(again)
    store.addFilter(rarely)
    try:
        yield
    finally:
        store.removeFilter(rarely)


class _Rarely(logging.Filter):
    """Lets a message through the first time, and again when it was last said `again` seconds ago."""

    def __init__(self, again: float) -> None:
        super().__init__()
        self._again = again
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = record.getMessage(), time.monotonic()
        # Forgotten when old: a worker lives for months, and some reasons name addresses.
        self._said = {said: at for said, at in self._said.items() if now - at < self._again}
        new = text not in self._said
        self._said.setdefault(text, now)
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
