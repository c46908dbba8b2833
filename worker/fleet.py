"""The fleet as the store shows it: queues, deliveries and their leases, live workers, rates.

One script a partition reads it (``queue_stats.lua``), and nothing is written, so a user of the server that
may only read is enough, and reading never opens a namespace under the wrong lease. The exporter, `worker top`
and the doctor look through this window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    NoScriptError,
    RedisError,
)

from world_redis.errors import AccessRefused, LayoutMismatch, StoreUnavailable
from world_redis.keys import LAYOUT, Keys
from world_redis.link import Link
from world_redis.roster import live_lines
from world_redis.scripts import SCRIPTS, Switches, arguments, packed_command, script_call, unpack_reply

from .runtime.telemetry import Metric

READ_SECONDS = 5.0  # a reading that takes longer has failed

# fmt: off
FLEET_METRICS: tuple[Metric, ...] = (
    Metric("exporter_up", "gauge", "1 when the last reading of Redis succeeded; the others are absent at 0"),
    # work
    Metric("backlog", "gauge", "messages to hand out: ready, due, or lapsed", ("queue",)),
    Metric("oldest_message_seconds", "gauge", "how long the oldest of the backlog has waited", ("queue",)),
    Metric("delayed_messages", "gauge", "messages not due yet: sleeps, retries, rescues", ("queue",)),
    Metric("deliveries_in_flight", "gauge", "deliveries held by a worker under a running lease", ("queue",)),
    Metric("leases_lapsed", "gauge", "deliveries whose lease has passed, taken by nobody yet", ("queue",)),
    # runs
    Metric("open_runs", "gauge", "runs not finished, parked ones included"),
    Metric("parked_runs", "gauge", "runs that wait for another build or for a person"),
    Metric("dead_letters_kept", "gauge", "messages nobody could use, kept until dropped"),
    # workers
    Metric("workers", "gauge", "live workers, draining ones included"),
    Metric("workers_draining", "gauge", "live workers that take nothing new"),
    Metric("queue_workers", "gauge", "live workers that take from the queue", ("queue",)),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue over all partitions. Every message is counted in one place."""

    queue: str
    ready: int = 0
    due: int = 0  # delayed until now
    delayed: int = 0  # not due yet; a run with a running step has its rescue here
    in_flight: int = 0
    lapsed: int = 0  # their deadline has passed, and nobody has taken them again
    oldest_seconds: float = 0.0  # waited by the oldest of the backlog
    arrived: int = 0  # messages made ready since the queue exists
    workers: int = 0  # that take from it

    @property
    def backlog(self) -> int:
        """To be handed out now."""
        return self.ready + self.due + self.lapsed

    def __add__(self, other: QueueFigures) -> QueueFigures:
        """Both together, under the name of the first. `workers` is not a sum: it stays the first's."""
        return replace(
            self,
            ready=self.ready + other.ready,
            due=self.due + other.due,
            delayed=self.delayed + other.delayed,
            in_flight=self.in_flight + other.in_flight,
            lapsed=self.lapsed + other.lapsed,
            oldest_seconds=max(self.oldest_seconds, other.oldest_seconds),
            arrived=self.arrived + other.arrived,
        )


@dataclass(frozen=True, slots=True)
class InFlight:
    """A delivery that a worker holds, or held when its lease ran out."""

    message_id: str
    number: int
    kind: str  # run or step
    run_id: str
    key: str  # wake, timer, or the step's short id
    attempt: int
    worker: str
    lease_left: float  # seconds; 0: lapsed
    queue: str


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """What a worker has last said of itself, at most three leases ago."""

    id: str
    build: str
    queues: list[str]
    concurrency: int
    steps: int  # whose code runs
    sessions: int  # runs it keeps in memory
    draining: bool
    lease: float  # seconds
    seen_seconds: float  # ago

    @property
    def silent(self) -> bool:
        """It announces itself three times a lease: after a whole one without a word it is away."""
        return self.seen_seconds > self.lease


@dataclass(frozen=True, slots=True)
class Fleet:
    """One reading. Partitions are read one after the other, each at one moment."""

    at: int  # ms, the server's clock
    queues: list[QueueFigures]
    workers: list[LiveWorker]
    deliveries: list[InFlight]  # nearest deadline first
    open_runs: int
    parked_runs: int
    dead_letters: int
    rescues: int  # fired since the namespace exists


# --- reading --------------------------------------------------------------------------------------


class FleetReader:
    """Reads one namespace over a connection of its own, made when needed.

    Args:
        url: of a server, as `worker.addresses.resolve` answers it.
        partitions: how many are in use.
    """

    def __init__(self, url: str, *, namespace: str = "wf", partitions: int = 1) -> None:
        self._url = url
        self._keys = Keys(namespace)
        self._queues: dict[int, list[str]] = {number: [] for number in range(partitions)}
        self._link: Link | None = None

    @property
    def namespace(self) -> str:
        return self._keys.namespace

    async def read(self, *, deliveries: int = 0) -> Fleet:
        """The fleet now, with at most `deliveries` of each queue and partition.

        Raises:
            StoreUnavailable: no answer within READ_SECONDS.
            AccessRefused: a wrong password, or an ACL without what reading needs.
            LayoutMismatch: the namespace is of another version.
        """
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self._read(deliveries)
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            await self.close()
            raise AccessRefused(f"Redis refuses us: {error}") from error
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            await self.close()
            reason = str(error) or f"it takes longer than {READ_SECONDS:g} s"
            raise StoreUnavailable(f"no answer from Redis: {reason}") from error

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _read(self, deliveries: int) -> Fleet:
        link = self._link
        if link is None or link.broken:
            link = self._link = await Link.open(self._url)
        record = _pairs(await link.call("HGETALL", self._keys.namespace_record()))
        if record.get("layout", LAYOUT.encode()).decode() != LAYOUT:
            raise LayoutMismatch(f"namespace {self._keys.namespace!r} is of another version of stepfleet")
        seconds, micros = await link.call("TIME")
        now = int(seconds) * 1000 + int(micros) // 1000
        answers = [await self._partition(link, number, deliveries) for number in self._queues]
        return _together(now, _live_workers(record, now), [answer for answer in answers if answer])

    async def _partition(self, link: Link, partition: int, deliveries: int) -> list[Any]:
        """What the script says of a partition; nothing when no worker or client has opened it yet."""
        while True:
            queues = self._queues[partition]
            call = script_call("queue_stats", partition, [deliveries])
            packed = packed_command(self._keys, call, queues, link.server, Switches())
            try:
                reply = unpack_reply(await link.call("EVALSHA_RO", *arguments(packed)))
            except NoScriptError:
                await link.call("SCRIPT", "LOAD", SCRIPTS[call.script].text)
                continue
            if reply[0] == b"keys":
                self._queues[partition] = [name.decode() for name in reply[1]]
                continue
            return reply[1:] if reply[0] == b"ok" else []


def _live_workers(record: dict[str, bytes], now: int) -> list[LiveWorker]:
    found = []
    for about in live_lines(record, now).values():
        said = {field: about[field] for field in LiveWorker.__slots__ if field != "seen_seconds"}
        found.append(LiveWorker(**said, seen_seconds=max(0, now - about["seen"]) / 1000))
    return sorted(found, key=lambda worker: worker.id)


def _together(now: int, workers: list[LiveWorker], partitions: Sequence[list[Any]]) -> Fleet:
    queues: dict[str, QueueFigures] = {}
    deliveries: list[InFlight] = []
    for _, rows, *_ in partitions:
        for row in rows:
            figures = _figures(row)
            queues[figures.queue] = queues.get(figures.queue, QueueFigures(figures.queue)) + figures
            deliveries += [_in_flight(delivery, figures.queue) for delivery in row[8]]
    return Fleet(
        at=now,
        queues=[
            replace(queues[name], workers=sum(name in w.queues and not w.draining for w in workers))
            for name in sorted(queues)
        ],
        workers=workers,
        deliveries=sorted(deliveries, key=lambda delivery: delivery.lease_left),
        open_runs=sum(answer[2] for answer in partitions),
        parked_runs=sum(answer[3] for answer in partitions),
        dead_letters=sum(answer[4] for answer in partitions),
        rescues=sum(answer[5] for answer in partitions),
    )


def _figures(row: Sequence[Any]) -> QueueFigures:
    name, ready, due, delayed, in_flight, lapsed, oldest, arrived, _ = row
    return QueueFigures(name.decode(), ready, due, delayed, in_flight, lapsed, oldest / 1000, arrived)


def _in_flight(row: Sequence[Any], queue: str) -> InFlight:
    id, number, kind, run, key, attempt, holder, left = row
    return InFlight(
        id.decode(),
        number,
        kind.decode(),
        run.decode(),
        key.decode(),
        attempt,
        holder.decode(),
        left / 1000,
        queue,
    )


def _pairs(reply: Any) -> dict[str, bytes]:
    items = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value for name, value in items}


# --- rates ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """What moved in a queue between two readings, in messages a second."""

    queue: str
    arriving: float  # made ready
    leaving: float  # handed out, or withdrawn


def rates(before: Fleet, after: Fleet) -> list[Rate]:
    """Rates of the queues of `after`. A queue that was not there before, or that lost its history in
    between, has none."""
    seconds = (after.at - before.at) / 1000
    earlier = {figures.queue: figures for figures in before.queues}
    found = []
    for figures in after.queues:
        then = earlier.get(figures.queue)
        if then is None or seconds <= 0 or figures.arrived < then.arrived:
            continue
        arrived = figures.arrived - then.arrived
        left = max(0, then.ready + arrived - figures.ready)
        found.append(Rate(figures.queue, arrived / seconds, left / seconds))
    return found
