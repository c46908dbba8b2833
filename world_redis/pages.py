"""Walks over large keys, a small page at a time: no answer, and nothing kept here, grows with the key.

What is in a key all the while comes at least once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from .runs import CommandCaller

PAGE = 200  # asked for at once
LARGE = 50  # the same, of what comes with its values


def members(world: CommandCaller, key: str) -> AsyncIterator[list[str]]:
    """Of a sorted set."""
    return _scanned(lambda cursor: world.command("ZSCAN", key, cursor, "COUNT", PAGE))


def names(world: CommandCaller, key: str) -> AsyncIterator[list[str]]:
    """Of the fields of a hash."""
    return _scanned(lambda cursor: world.command("HSCAN", key, cursor, "COUNT", LARGE))


async def _scanned(scan: Callable[[bytes], Awaitable[Any]]) -> AsyncIterator[list[str]]:
    """The first of each pair: a score or a value follows."""
    cursor = b"0"
    while True:
        cursor, flat = await scan(cursor)
        yield [first.decode() for first in flat[::2]]
        if cursor == b"0":
            return


async def entries(world: CommandCaller, key: str) -> AsyncIterator[list[tuple[str, str]]]:
    """Entry id and message id, of a stream of messages."""
    after = "-"
    while True:
        page: Any = await world.command("XRANGE", key, after, "+", "COUNT", PAGE)
        if not page:
            return
        yield [(entry.decode(), fields[1].decode()) for entry, fields in page]
        after = f"({page[-1][0].decode()}"
