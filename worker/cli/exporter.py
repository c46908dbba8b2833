"""``worker exporter``: what only the whole fleet has, once for the whole fleet, for Prometheus.

Every worker would report the same backlog, and none would when no worker is left. Redis is read when somebody
asks, at most once in FRESH_SECONDS. While it is away ``workflow_exporter_up`` is 0 and the other gauges are
absent: a figure of a minute ago must not look like one of now.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterator
from typing import cast

import click
from prometheus_client.core import GaugeMetricFamily

from world_redis.errors import StoreError

from ..addresses import resolve
from ..fleet import FLEET_METRICS, Fleet, FleetReader, QueueFigures
from ..runtime import logs
from ..runtime.endpoint import Endpoint, PortTaken
from ..runtime.telemetry import Telemetry
from ..settings import Settings
from .commands import Failure

log = logging.getLogger("worker.exporter")

DEFAULT_PORT = 9465
FRESH_SECONDS = 1.0
MOST_QUEUES = 50  # that have a label of their own
OTHER = "other"


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True,
              help="Of /metrics, /healthz, /readyz; 0: a free one.")  # fmt: skip
def exporter(port: int) -> None:
    """Serve the gauges of the whole fleet to Prometheus. One for a fleet; it only reads."""
    settings = Settings.load()
    logs.configure(settings.log_level)
    url, server = resolve(settings.url)
    reader = FleetReader(url, namespace=settings.namespace, partitions=settings.partitions)
    try:
        asyncio.run(_serve(reader, port))
    except PortTaken as error:
        raise Failure(str(error)) from error
    finally:
        if server is not None:
            server.stop()


async def _serve(reader: FleetReader, port: int) -> None:
    """Until SIGTERM or Ctrl-C."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    source = Exporter(reader, loop)
    # The endpoint asks of its telemetry only that it can be collected.
    endpoint = Endpoint(cast(Telemetry, source), alive=lambda: "", ready=lambda: source.trouble, port=port)
    endpoint.start()
    try:
        await stop.wait()
    finally:
        await asyncio.to_thread(endpoint.stop)
        await reader.close()


class Exporter:
    """The fleet as a Prometheus collector: asked by the threads of the endpoint, read on `loop`."""

    def __init__(self, reader: FleetReader, loop: asyncio.AbstractEventLoop) -> None:
        self.trouble = "not read yet"  # "" when the last reading succeeded
        self._reader, self._loop = reader, loop
        self._reading = asyncio.Lock()
        self._fleet: Fleet | None = None
        self._read_at = float("-inf")
        self._labels = QueueLabels(MOST_QUEUES)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        fleet = asyncio.run_coroutine_threadsafe(self._fresh(), self._loop).result()
        return gauges(fleet, self._labels)

    async def _fresh(self) -> Fleet | None:
        async with self._reading:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._fleet = await self._read()
                self._read_at = time.monotonic()
            return self._fleet

    async def _read(self) -> Fleet | None:
        try:
            fleet = await self._reader.read()
        except StoreError as error:
            if str(error) != self.trouble:
                log.warning("the fleet cannot be read: %s", error)
            self.trouble = str(error)
            return None
        if self.trouble:
            log.info("reading the fleet")
        self.trouble = ""
        return fleet


class QueueLabels:
    """Queue names come from users: the first `most` seen keep a label of their own, the rest share one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, queue: str) -> str:
        if queue not in self._known and len(self._known) >= self._most:
            return OTHER
        self._known.add(queue)
        return queue


# --- from a reading to gauges -----------------------------------------------------------------------

OF_FLEET: dict[str, Callable[[Fleet], float]] = {
    "open_runs": lambda fleet: fleet.open_runs,
    "parked_runs": lambda fleet: fleet.parked_runs,
    "dead_letters_kept": lambda fleet: fleet.dead_letters,
    "workers": lambda fleet: len(fleet.workers),
    "workers_draining": lambda fleet: sum(worker.draining for worker in fleet.workers),
}
OF_QUEUE: dict[str, Callable[[QueueFigures], float]] = {
    "backlog": lambda figures: figures.backlog,
    "oldest_message_seconds": lambda figures: figures.oldest_seconds,
    "delayed_messages": lambda figures: figures.delayed,
    "deliveries_in_flight": lambda figures: figures.in_flight,
    "leases_lapsed": lambda figures: figures.lapsed,
    "queue_workers": lambda figures: figures.workers,
}


def gauges(fleet: Fleet | None, label: Callable[[str], str]) -> Iterator[GaugeMetricFamily]:
    """Every row of FLEET_METRICS; all but the first without a value when the fleet could not be read."""
    queues = _by_label(fleet.queues if fleet else [], label)
    for metric in FLEET_METRICS:
        family = GaugeMetricFamily(f"workflow_{metric.name}", metric.help, labels=metric.labels)
        if metric.name == "exporter_up":
            family.add_metric([], fleet is not None)
        elif metric.name in OF_QUEUE:
            for name, figures in queues.items():
                family.add_metric([name], OF_QUEUE[metric.name](figures))
        elif fleet is not None:
            family.add_metric([], OF_FLEET[metric.name](fleet))
        yield family


def _by_label(queues: list[QueueFigures], label: Callable[[str], str]) -> dict[str, QueueFigures]:
    found: dict[str, QueueFigures] = {}
    for figures in queues:
        name = label(figures.queue)
        found[name] = found[name] + figures if name in found else figures
    return found
