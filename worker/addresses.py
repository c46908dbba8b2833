"""From a configured URL to a server to connect to. Only ``embedded://`` starts one."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from .settings import SettingsError

if TYPE_CHECKING:
    from world_redis.embedded import EmbeddedServer

DEV_DATA = ".stepfleet"  # where `worker dev` keeps its server's data, in the folder it runs in

_ANSWER_SECONDS = 1.0


def resolve(url: str) -> tuple[str, EmbeddedServer | None]:
    """The URL to connect to, and the embedded server it needs. Blocks.

    ``embedded:///directory`` starts the server of that directory, or attaches to it when it runs; it ends
    with the process that started it.

    Raises:
        SettingsError: an embedded URL names no directory.
        EmbeddedServerError: the server cannot be started.
    """
    parts = urlsplit(url)
    if parts.scheme != "embedded":
        return url, None
    directory = unquote(parts.path)
    if parts.netloc or not directory.strip("/"):
        raise SettingsError("an embedded URL names a directory: embedded:///absolute/path")
    # Imported here: most clients have a server of their own.
    from world_redis.embedded import EmbeddedServer

    server = EmbeddedServer.start(Path(directory))
    return server.url, server


def embedded_url(directory: Path) -> str:
    """The ``embedded://`` URL of a directory."""
    return f"embedded://{quote(str(directory.resolve()))}"


def url_of_dev() -> str | None:
    """The URL that leads everyone to the server of the `worker dev` that runs in the working directory;
    None when none does. Starts nothing."""
    directory = Path(DEV_DATA)
    return None if running_server(directory) is None else embedded_url(directory)


def running_server(directory: Path) -> str | None:
    """The URL of the embedded server that runs in `directory`; None when none does. Starts nothing."""
    try:
        path = str(json.loads((directory / "server.json").read_text())["socket"])
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(path)  # the file outlives its server
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return f"unix://{quote(path)}"
