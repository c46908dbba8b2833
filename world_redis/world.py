"""RedisWorld: connects, refuses unsafe servers, carries script calls through every weather."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from .errors import (
    AccessRefused,
    LayoutMismatch,
    LeaseMismatch,
    ScriptError,
    StoreUnavailable,
    UnsafeServer,
)
from .keys import LAYOUT, Keys
from .link import Link
from .safety import ANSWERING, Durability, refuse_unsafe
from .scripts import SCRIPTS, ScriptCall, Switches, pack_lua, packed_command, unpack_reply

log = logging.getLogger("worker.store")

# What a server says when it cannot serve this call now but will later: wait, say so, go on. redis-py makes
# classes of most (LOADING is a ConnectionError, MOVED an AskError, MASTERDOWN a ClusterDownError).
_PASSING = (AskError, ClusterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_PASSING_TEXTS = ("BUSY", "MISCONF", "NOREPLICAS")
_REFUSING = (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    NoPermissionError,
)
_TROUBLE = (ConnectionError, TimeoutError, OSError, ResponseError, UnsafeServer)  # of a server or a network
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 2.0  # seconds


class _Weather:
    """How long a call that began at `began` waits for a server that cannot serve it."""

    def __init__(self, patience: float | None, began: float) -> None:
        self._patience, self._began = patience, began
        self._next = _FIRST_PAUSE

    async def pause(self, reason: str) -> None:
        """Raises StoreUnavailable when it would be too long."""
        if self._patience is not None and time.monotonic() - self._began + self._next > self._patience:
            raise StoreUnavailable(f"no answer from Redis for {self._patience:g} s: {reason}")
        if self._next > 0.2:
            log.warning("waiting for Redis: %s", reason)
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))
        self._next = min(_LONGEST_PAUSE, self._next * 2)


class RedisWorld:
    """The store of one namespace on one server. Safe to share between tasks of one event loop.

    `lease` (seconds) must agree with what the namespace runs with; None, for whoever holds no deliveries,
    has no opinion. `patience` (seconds, None: for ever) is how long a call waits for a server that is away
    before it raises StoreUnavailable.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "wf",
        partitions: int = 1,
        lease: float | None = 30.0,
        durability: Durability | None = None,
        patience: float | None = None,
        switches: Switches | None = None,
        queues: Sequence[str] = ("default",),
    ) -> None:
        self.url, self.keys = url, Keys(namespace)
        self.partitions = range(partitions)
        self.lease = lease
        self.durability = durability or Durability()
        self.replaces_lease = False  # set it only when no worker of the namespace lives
        self.patience = patience
        self.switches = switches or Switches()
        self.round_trips: dict[str, int] = {}
        self._served = list(queues)
        self._queues: dict[int, list[str]] = {}  # partition → the queues it knows, in its own order
        self._link: Link | None = None
        self._linking = asyncio.Lock()
        self.connects = 0  # grows with every new connection: a body built before may be ahead of the log

    # -- life --------------------------------------------------------------------------------------

    async def open(self) -> RedisWorld:
        """Connect, check the server and the namespace. Raises UnsafeServer, LayoutMismatch, LeaseMismatch,
        AccessRefused, StoreUnavailable."""
        await self._retrying(self._agree)
        return self

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def __aenter__(self) -> RedisWorld:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def server(self) -> str:
        """run_id of the server the current connection goes to ("" before the first)."""
        return self._link.server if self._link else ""

    def queues(self, partition: int) -> list[str]:
        """Those a partition is known to have, in its own order; ours at first."""
        known = self._queues.get(partition)
        if known is None:
            known = self._queues[partition] = list(self._served)
        return known

    # -- calls -------------------------------------------------------------------------------------

    async def __call__(self, call: ScriptCall) -> list[Any]:
        """Run a script: the same call again, by its own identity, until the server has answered."""
        began, weather = time.monotonic(), None
        while True:
            try:
                return await self._run(call, weather is not None)
            except _TROUBLE as error:
                weather = weather or _Weather(self.patience, began)
                await self._sit_out(error, weather)

    async def command(self, *args: bytes | str | int) -> Any:
        """A plain command that is harmless to repeat."""

        async def attempt() -> Any:
            return await (await self._connected()).call(*args)

        return await self._retrying(attempt)

    async def _run(self, call: ScriptCall, resent: bool) -> list[Any]:
        while True:
            link = self._link
            if link is None or link.broken:
                link = await self._connected()
            queues = self._merge(call.partition, call.queues)
            self.round_trips[call.script] = self.round_trips.get(call.script, 0) + 1
            packed = packed_command(self.keys, call, queues, link.server, self.switches, resent=resent)
            try:
                answer = link.send(packed)
                if call.meanwhile is not None:
                    call.meanwhile()
                reply = unpack_reply(await answer)
            except NoScriptError:
                await link.call("SCRIPT", "LOAD", SCRIPTS[call.script].text)
                continue
            if reply[0] == b"keys":
                self._merge(call.partition, [name.decode() for name in reply[1]], first=True)
            elif reply[0] == b"closed":
                await self._open_partition(link, call.partition)
            elif reply[0] == b"server":
                await self._drop(link)
                raise ConnectionError("the connection leads to another server than it did")
            else:
                if call.script in ANSWERING and self.durability.kind != "memory":
                    await self.durability.wait(link)
                return reply

    def _merge(self, partition: int, names: Sequence[str], *, first: bool = False) -> list[str]:
        """Queues known for a partition, in the partition's own order."""
        known = self.queues(partition)
        if first:
            known[:] = [*names, *(name for name in known if name not in names)]
        else:
            for name in names:
                if name not in known:
                    known.append(name)
        return known

    async def _retrying(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        weather = _Weather(self.patience, time.monotonic())
        while True:
            try:
                return await attempt()
            except _TROUBLE as error:
                await self._sit_out(error, weather)

    async def _sit_out(self, error: Exception, weather: _Weather) -> None:
        """Return when it is time to try again. Raises AccessRefused, ScriptError, StoreUnavailable. An unsafe
        server is refused at first; one that took over later is waited for until it is put right."""
        reason = str(error) or type(error).__name__
        passing = isinstance(error, _PASSING) or reason.startswith(_PASSING_TEXTS)
        if isinstance(error, UnsafeServer) and not self.connects:
            raise error
        if isinstance(error, _REFUSING):
            raise AccessRefused(f"Redis refuses us: {error}") from error
        if isinstance(error, ResponseError) and not passing:
            raise ScriptError(reason) from error
        if isinstance(error, ReadOnlyError) and self._link is not None:
            await self._drop(self._link)  # a replica now: the name may lead to the new primary
        await weather.pause(reason)

    # -- connecting --------------------------------------------------------------------------------

    async def _connected(self) -> Link:
        if self._link is None or self._link.broken:
            async with self._linking:
                if self._link is None or self._link.broken:
                    if self._link is not None:
                        await self._drop(self._link)
                    self._link = await self._connect()
                    self.connects += 1
        return self._link

    async def _connect(self) -> Link:
        """Every server is looked at: a fail-over may lead to one that is set up otherwise."""
        link = await Link.open(self.url)
        try:
            await refuse_unsafe(link, self.durability)
        except BaseException:
            await link.close()
            raise
        return link

    async def _drop(self, link: Link) -> None:
        if self._link is link:
            self._link = None
        await link.close()

    async def _agree(self) -> None:
        await self._grow(await self._connected(), 0)

    async def learn_partitions(self) -> int:
        """How many partitions the namespace has; new ones are opened. It only grows: the largest number any
        process was started with."""
        before = len(self.partitions)

        async def attempt() -> None:
            await self._grow(await self._connected(), before)

        await self._retrying(attempt)
        return len(self.partitions)

    async def _grow(self, link: Link, before: int) -> None:
        """Agree on layout and partitions; open those from `before` on."""
        script, record = SCRIPTS["namespace_open"].text, self.keys.namespace_record()
        raw = await link.call("EVAL", script, 1, record, LAYOUT, len(self.partitions))
        layout, known = unpack_reply(raw)
        if layout.decode() != LAYOUT:
            raise LayoutMismatch(
                f"namespace {self.keys.namespace!r} has key layout {layout.decode()}, this version reads "
                f"{LAYOUT}: run a matching version, or use another WORKFLOW_NAMESPACE"
            )
        self.partitions = range(known)
        for partition in self.partitions[before:]:
            await self._open_partition(link, partition)

    async def _open_partition(self, link: Link, partition: int) -> None:
        lease = str(int((self.lease or 0) * 1000))
        raw = await link.call(
            "EVAL",
            SCRIPTS["partition_open"].text,
            1,
            self.keys.partition(partition)[0],
            link.server,
            lease,
            pack_lua(self.queues(partition)),
            int(self.replaces_lease),
        )
        word, theirs = unpack_reply(raw)
        if word == b"conflict":
            raise LeaseMismatch(
                f"namespace {self.keys.namespace!r} runs with a lease of {theirs / 1000:g} s, this process "
                f"wants {self.lease or 0:g} s: set WORKFLOW_INLINE_OWNERSHIP_LEASE_SECONDS to the same "
                "everywhere"
            )
