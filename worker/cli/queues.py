"""``worker queues``: how much waits, how old it is, and who works."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

import click

from ..fleet import Fleet, FleetReader, LiveWorker, QueueFigures
from .commands import fleet_reader, json_option
from .output import print_json, print_table


@click.command()
@json_option
def queues(as_json: bool) -> None:
    """Show every queue of the namespace: backlog, age, work in flight, workers."""
    with fleet_reader() as reader:
        fleet = asyncio.run(_read(reader))
    if as_json:
        shown = [asdict(figures) | {"backlog": figures.backlog} for figures in fleet.queues]
        print_json({"queues": shown, "workers": fleet.workers})
        return
    print_table(
        ("queue", "backlog", "oldest", "delayed", "in flight", "workers"),
        (
            (
                q.queue,
                q.backlog,
                f"{q.oldest_seconds:.1f} s" if q.backlog else "",
                q.delayed,
                q.in_flight,
                serving(q, fleet.workers),
            )
            for q in fleet.queues
        ),
        empty="no queues",
    )
    print_table(
        ("worker", "build", "queues", "steps", "state"),
        (
            (w.id, w.build, ", ".join(w.queues), f"{w.steps}/{w.concurrency}", state_of(w))
            for w in fleet.workers
        ),
        empty="\nno live workers",
        title="\nworkers",
        drop=("build", "steps", "queues"),
    )


def state_of(worker: LiveWorker) -> str:
    """What a worker does, as far as is known of it."""
    if worker.silent:
        return f"silent {worker.seen_seconds:.0f} s"
    return "draining" if worker.draining else "at work"


def serving(figures: QueueFigures, workers: Sequence[LiveWorker]) -> int:
    """How many workers take from a queue: those counted, less the silent ones."""
    away = (w for w in workers if w.silent and not w.draining)
    return figures.workers - sum(figures.queue in worker.queues for worker in away)


async def _read(reader: FleetReader) -> Fleet:
    try:
        return await reader.read()
    finally:
        await reader.close()
