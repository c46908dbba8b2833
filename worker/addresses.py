"""From a configured URL to a server to connect to. Only ``embedded://`` starts one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from .settings import SettingsError

if TYPE_CHECKING:
    from world_redis.embedded import EmbeddedServer


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
