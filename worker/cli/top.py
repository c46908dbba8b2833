"""``worker top``: the fleet at work. Workers, what they hold and for how long, queues, rates."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from world_redis.errors import StoreUnavailable

from ..fleet import Fleet, FleetReader, InFlight, LiveWorker, Rate, rates
from .commands import fleet_reader
from .output import console, counted, print_json, table_of
from .queues import serving, state_of

MOST_DELIVERIES = 500  # of each queue and partition that are looked at
_OF_SCREEN = 2  # one line in so many may show a delivery


@dataclass(frozen=True, slots=True)
class View:
    """Two readings, one interval apart, as shown."""

    fleet: Fleet
    rates: list[Rate]


@dataclass(frozen=True, slots=True)
class Look:
    """How a view is shown."""

    namespace: str
    width: int | None = None  # of the terminal; None: as wide as it gets
    lines: int = MOST_DELIVERIES  # so many deliveries at most, those whose lease ends first


@click.command()
@click.option("--once", is_flag=True, help="Print one view and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one view as JSON and end.")
@click.option("--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True,
              help="Seconds between two looks; rates are over one interval.")  # fmt: skip
def top(once: bool, as_json: bool, interval: float) -> None:
    """Show the fleet at work: workers, their deliveries and leases left, queues, rates. Ctrl-C ends it."""
    try:
        with fleet_reader() as reader:
            look = Look(reader.namespace)
            asyncio.run(_show(reader, look, interval, once=once, as_json=as_json))
    except KeyboardInterrupt:
        pass


async def _show(reader: FleetReader, look: Look, interval: float, *, once: bool, as_json: bool) -> None:
    try:
        before = await reader.read(deliveries=MOST_DELIVERIES)
        if not (once or as_json):
            await _watch(reader, look, interval, before)
            return
        await asyncio.sleep(interval)
        fleet = await reader.read(deliveries=MOST_DELIVERIES)
        view = View(fleet, rates(before, fleet))
        if as_json:
            print_json(view)
        else:
            screen = console()
            screen.print(render(view, _on(screen, look)))
    finally:
        await reader.close()


def _on(screen: Console, look: Look) -> Look:
    return replace(look, width=screen.width) if screen.is_terminal else look


async def _watch(reader: FleetReader, look: Look, interval: float, before: Fleet) -> None:
    view, trouble = View(before, []), ""
    screen = console()
    with Live(console=screen, screen=screen.is_terminal, auto_refresh=False) as live:
        while True:
            fitting = replace(_on(screen, look), lines=max(5, screen.height // _OF_SCREEN))
            live.update(render(view, fitting, trouble=trouble), refresh=True)
            await asyncio.sleep(interval)
            try:
                fleet, trouble = await reader.read(deliveries=MOST_DELIVERIES), ""
            except StoreUnavailable as error:
                trouble = f"{error}; what follows is old"
                continue
            view = View(fleet, rates(view.fleet, fleet))


# --- what it looks like -----------------------------------------------------------------------------


def render(view: View, look: Look, *, trouble: str = "") -> RenderableType:
    """The view as tables."""
    fleet = view.fleet
    return Group(
        *([Text(trouble, style="bold red")] if trouble else []),
        Text(_summary(fleet, look), style="bold"),
        Text(),
        _workers(fleet.workers, fleet.deliveries, look),
        Text(),
        _queues(fleet, view.rates, look),
        Text(),
        _deliveries(fleet.deliveries, look),
    )


def _summary(fleet: Fleet, look: Look) -> str:
    at = datetime.fromtimestamp(fleet.at / 1000, UTC)
    away = sum(worker.silent for worker in fleet.workers)
    workers = counted(len(fleet.workers), "worker") + (f" ({away} silent)" if away else "")
    return (
        f"{look.namespace}  {at:%H:%M:%S} UTC  {workers}  "
        f"{counted(fleet.open_runs, 'open run')}  {fleet.parked_runs} parked  "
        f"{counted(fleet.dead_letters, 'dead letter')}  {counted(fleet.rescues, 'rescue')} so far"
    )


def _workers(workers: Sequence[LiveWorker], deliveries: Sequence[InFlight], look: Look) -> RenderableType:
    if not workers:
        return Text("no live workers")
    held = Counter(delivery.worker for delivery in deliveries)
    # Deliveries come with the nearest deadline first: the last one written is the first to end.
    ends = {delivery.worker: f"{delivery.lease_left:.1f} s" for delivery in reversed(deliveries)}
    columns = ("worker", "build", "queues", "steps", "runs kept", "deliveries", "first lease left", "state")
    rows = (
        (
            worker.id,
            worker.build,
            ", ".join(worker.queues),
            f"{worker.steps}/{worker.concurrency}",
            worker.sessions,
            held[worker.id],
            ends.get(worker.id, ""),
            state_of(worker),
        )
        for worker in workers
    )
    drop = ("build", "runs kept", "deliveries", "queues", "first lease left", "steps")
    return table_of(columns, rows, width=look.width, drop=drop)


def _queues(fleet: Fleet, moved: Sequence[Rate], look: Look) -> RenderableType:
    if not fleet.queues:
        return Text("no queues yet")
    rate = {each.queue: each for each in moved}
    columns = ("queue", "backlog", "oldest", "in/s", "out/s", "in flight", "lapsed", "delayed", "workers")
    rows = []
    for q in fleet.queues:
        known = rate.get(q.queue)
        arriving, leaving = (known.arriving, known.leaving) if known else (None, None)
        waited = f"{q.oldest_seconds:.1f} s" if q.backlog else ""
        workers = serving(q, fleet.workers)
        rows.append(
            (q.queue, q.backlog, waited, arriving, leaving, q.in_flight, q.lapsed, q.delayed, workers)
        )
    return table_of(columns, rows, width=look.width, drop=("in/s", "out/s", "delayed", "lapsed"))


def _deliveries(deliveries: Sequence[InFlight], look: Look) -> RenderableType:
    if not deliveries:
        return Text("nothing in flight")
    columns = ("run", "for", "lease left", "message", "number", "attempt", "queue", "worker")
    rows = (
        (
            each.run_id,
            f"step {each.key}" if each.kind == "step" else each.key,
            f"{each.lease_left:.1f} s" if each.lease_left else "lapsed",
            each.message_id,
            each.number,
            each.attempt,
            each.queue,
            each.worker,
        )
        for each in deliveries[: look.lines]
    )
    more = len(deliveries) - look.lines
    table = table_of(
        columns, rows, width=look.width, drop=("message", "number", "attempt", "queue", "worker")
    )
    return Group(table, Text(f"and {more} more", style="dim")) if more > 0 else table
