"""One connection that many callers share: commands go out as they come, replies return in order.

Twenty tasks that each wait for their own script call cost three writes and as few reads this way. redis-py
opens the connection (TLS, AUTH, HELLO, sockets). From then on we speak on its transport ourselves: its own
sending and reading costs as much as all the rest of a call, and it resends silently where only the caller
knows which call is safe to resend.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from hiredis import Reader, pack_command
from redis.asyncio.connection import AbstractConnection, Connection, DefaultParser, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, ConnectionError, InvalidResponse

# A host that vanished sends no reset. Longer than any script or fork pause of a healthy server.
SILENCE_SECONDS = 20.0
# Commands in one write. The server works on these while the next ones are made.
PER_WRITE = 8


def make_connection(url: str, *, connect_timeout: float = 5.0) -> AbstractConnection:
    """A redis-py connection for `url`, unconnected, with its own retries off."""
    options = connection_options(parse_url(url))
    kind: Callable[..., AbstractConnection] = options.pop("connection_class", Connection)
    options.setdefault("socket_connect_timeout", connect_timeout)
    return kind(**options | {"socket_timeout": None, "retry": Retry(NoBackoff(), 0)})


def connection_options(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a parsed URL says of a connection. What changes the form of replies, resends, or belongs to a
    pool is not the URL's to say."""
    kept = {name: value for name, value in said.items() if name not in ("max_connections", "timeout")}
    return kept | {"decode_responses": False, "protocol": 2, "health_check_interval": 0}


_REFUSALS = (AuthenticationError, AuthorizationError)  # for redis-py they are ConnectionErrors
_INCOMPLETE = object()  # the rest of a reply has not come yet


class Link(asyncio.Protocol):
    """A live connection. Broken once, it stays broken: make another. Not for blocking commands."""

    def __init__(self, connection: AbstractConnection, *, silence: float = SILENCE_SECONDS) -> None:
        """`connection` is connected, and nobody waits for a reply on it."""
        self._connection = connection
        self._transport: asyncio.Transport = connection._writer.transport  # type: ignore[union-attr, assignment]
        self._replies = Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_INCOMPLETE
        )
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._outgoing: list[bytes] = []  # commands that wait for the end of this turn of the loop
        self._broken: Exception | None = None
        self._silence = silence
        self._came = 0  # readings so far: a watch that finds them unmoved finds a dead server
        self._watch: asyncio.TimerHandle | None = None
        self.server = ""  # run_id of the server at the other end
        self.info: dict[str, str] = {}
        self.synced = False  # the server answers only what is on its disk
        self._transport.set_protocol(self)
        if self._transport.is_closing():  # whoever was told of it was not this link
            self._break(ConnectionError("closed by the server"))

    @classmethod
    async def open(cls, url: str, *, silence: float = SILENCE_SECONDS) -> Link:
        """Connect and learn whom we speak to. Raises redis' ConnectionError, AuthenticationError, …"""
        connection = make_connection(url)
        try:
            async with asyncio.timeout(silence):
                await connection.connect()  # type: ignore[no-untyped-call]
        except ConnectionError as error:  # redis-py hides in it what a password or an ACL is to blame for
            refusal = error.__cause__ or error.__context__
            if isinstance(refusal, _REFUSALS):
                raise refusal from None
            raise
        link = cls(connection, silence=silence)
        try:
            link.info = _parse_info(await link.call("INFO", "server"))
        except BaseException:
            await link.close()
            raise
        link.server = link.info["run_id"]
        return link

    @property
    def broken(self) -> bool:
        return self._broken is not None

    def call(self, *args: bytes | str | int | float) -> asyncio.Future[Any]:
        """The answer to one command: see `send`."""
        return self.send(pack_command(args))  # type: ignore[arg-type]  # its stub knows one argument alone

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """The answer to a command that is packed already. Raises the server's ResponseError, or
        ConnectionError when the link breaks: then the command may or may not have run."""
        if self._broken is not None:
            raise ConnectionError(f"connection lost: {self._broken}")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        if self._watch is None:
            self._watch_silence()
        if len(self._waiting) == 1:  # nobody to share a write with
            self._transport.write(packed)
        else:
            if not self._outgoing:
                self._loop.call_soon(self._send_outgoing)
            self._outgoing.append(packed)
            if len(self._outgoing) == PER_WRITE:
                self._send_outgoing()
        return future

    def _send_outgoing(self) -> None:
        """What came together in one turn of the loop, and has not gone out yet."""
        packed, self._outgoing = b"".join(self._outgoing), []
        if packed and self._broken is None:
            self._transport.write(packed)

    async def close(self) -> None:
        self._break(ConnectionError("closed"))
        await self._connection.disconnect(nowait=True)

    # --- what the transport tells ----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._came += 1
        try:
            self._replies.feed(data)
            while self._broken is None and (reply := self._replies.gets()) is not _INCOMPLETE:
                self._answer(reply)
        except Exception as error:  # no reply, or not asked for: what follows would go to the wrong caller
            self._break(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._break(error or ConnectionError("closed by the server"))

    def _answer(self, reply: Any) -> None:
        error = reply if isinstance(reply, Exception) else None
        if isinstance(error, ConnectionError) and not isinstance(error, _REFUSALS):
            return self._break(error)  # the server serves nobody now, it is loading
        future = self._waiting.popleft()
        if future.done():  # its caller was cancelled; the command ran all the same
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(reply)

    def _watch_silence(self) -> None:
        """Look again after the silence limit; as long as somebody waits, something must have come or gone."""
        came, unsent = self._came, self._transport.get_write_buffer_size()

        def look() -> None:
            self._watch = None
            moved = self._came != came or self._transport.get_write_buffer_size() < unsent
            if self._waiting and not moved:
                self._break(ConnectionError(f"the server has not answered for {self._silence:g} s"))
            elif self._waiting:
                self._watch_silence()

        self._watch = self._loop.call_later(self._silence, look)

    def _break(self, error: Exception) -> None:
        if self._broken is None:
            self._broken = error
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(ConnectionError(f"connection lost: {error}"))


def _parse_info(raw: bytes) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in raw.decode().splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}
