"""Walks over large keys, a small page at a time: no answer, and nothing kept here, grows with the key.

What is in a key all the while comes at least once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from .runs import CommandCaller

PAGE = 200  # elements asked for at once
PAGE_WITH_VALUES = 50  # the same, of a hash: they come with their values, which may be large


def members(world: CommandCaller, key: str) -> AsyncIterator[list[str]]:
    """Pages of the members of a sorted set."""
    return _scanned(lambda cursor: world.command("ZSCAN", key, cursor, "COUNT", PAGE))


def names(world: CommandCaller, key: str) -> AsyncIterator[list[str]]:
    """Pages of the names of the fields of a hash."""
    return _scanned(lambda cursor: world.command("HSCAN", key, cursor, "COUNT", PAGE_WITH_VALUES))


async def _scanned(scan: Callable[[bytes], Awaitable[Any]]) -> AsyncIterator[list[str]]:
    """Pages of the first of each pair: a score or a value follows it."""
    cursor = b"0"
    while True:
        cursor, flat = await scan(cursor)
        yield [first.decode() for first in flat[::2]]
        if cursor == b"0":
            return


async def entries(world: CommandCaller, key: str) -> AsyncIterator[list[tuple[str, str]]]:
    """Pages of a stream of messages: entry id and message id."""
    after = "-"
    while True:
        page: Any = await world.command("XRANGE", key, after, "+", "COUNT", PAGE)
        if not page:
            return
        yield [(entry.decode(), fields[1].decode()) for entry, fields in page]
        after = f"({page[-1][0].decode()}"
