"""Who waits for the end of a run is told: one connection of a client for all its waiters.

Telling is a hint. It can be lost with its connection, so every waiter reads for itself when the
connection breaks, and every 15 s anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import Any, Self

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from world_redis.link import make_connection

log = logging.getLogger("worker.client")

RECHECK = 15.0  # seconds between two looks without any notice
_UNTOLD = 1.0  # the same while there is no connection to be told by


class Notices:
    """The listening connection. It is opened when the first waiter arms."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._waiting: dict[bytes, set[Notice]] = {}
        self._subscribed: dict[bytes, asyncio.Future[None]] = {}
        self._connection: AbstractConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    def of(self, channel: str) -> Notice:
        """A waiter for `channel`: ``async with notices.of(...) as notice``."""
        return Notice(self, channel.encode())

    async def close(self) -> None:
        reader = self._reader
        await self._lose()
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def subscribe(self, notice: Notice) -> bool:
        """True once the server tells of the channel; False when it cannot now."""
        self._waiting.setdefault(notice.channel, set()).add(notice)
        try:
            connection = await self._connected()
            told = self._subscribed.get(notice.channel)
            if told is None:
                told = self._subscribed[notice.channel] = asyncio.get_running_loop().create_future()
                await connection.send_command("SUBSCRIBE", notice.channel)
            async with asyncio.timeout(RECHECK):
                await asyncio.shield(told)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            log.debug("cannot listen for the ends of runs, asking instead: %s", error)
            return False
        return True

    async def unsubscribe(self, notice: Notice) -> None:
        waiting = self._waiting.get(notice.channel, set())
        waiting.discard(notice)
        if waiting:
            return
        self._waiting.pop(notice.channel, None)
        if self._subscribed.pop(notice.channel, None) is not None and self._connection is not None:
            with contextlib.suppress(RedisError, OSError):
                await self._connection.send_command("UNSUBSCRIBE", notice.channel)

    async def _connected(self) -> AbstractConnection:
        async with self._connecting:
            if self._connection is None:
                connection = make_connection(self._url)
                await connection.connect()  # type: ignore[no-untyped-call]
                self._connection = connection
                self._reader = asyncio.create_task(self._read(connection), name="run-notices")
            return self._connection

    async def _read(self, connection: AbstractConnection) -> None:
        try:
            while True:
                reply: Any = await connection.read_response(
                    disable_decoding=True, timeout=math.inf, disconnect_on_error=False
                )
                self._take(*reply[:2])
        except (RedisError, OSError, EOFError) as error:
            log.debug("the connection that tells of ended runs is lost: %s", error)
            await self._lose()

    def _take(self, kind: bytes, channel: bytes) -> None:
        if kind == b"subscribe":
            told = self._subscribed.get(channel)
            if told is not None and not told.done():
                told.set_result(None)
        elif kind == b"message":
            for notice in self._waiting.get(channel, ()):
                notice.told.set()

    async def _lose(self) -> None:
        connection, self._connection, self._reader = self._connection, None, None
        for future in self._subscribed.values():
            if not future.done():
                future.set_exception(ConnectionError("the connection is lost"))
                future.exception()  # whoever armed has it already, or nobody does any more
        self._subscribed.clear()
        for notice in [each for waiting in self._waiting.values() for each in waiting]:
            notice.told.set()
        if connection is not None:
            await connection.disconnect(nowait=True)


class Notice:
    """One waiter. Arm, then look, then wait: what happens after `arm` is told."""

    def __init__(self, notices: Notices, channel: bytes) -> None:
        self.channel = channel
        self.told = asyncio.Event()
        self._notices = notices
        self._armed = False

    async def arm(self) -> None:
        self.told.clear()
        self._armed = await self._notices.subscribe(self)

    async def wait(self) -> None:
        """Until told, or until it is time to look again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECHECK if self._armed else _UNTOLD):
                await self.told.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._notices.unsubscribe(self)
