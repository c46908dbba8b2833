"""``worker queues``: how much waits, how old it is, and who works."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import click

from ..fleet import Fleet, FleetReader
from .commands import fleet_reader, json_option, print_json, print_table


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
            (q.queue, q.backlog, f"{q.oldest_seconds:.1f} s", q.delayed, q.in_flight, q.workers)
            for q in fleet.queues
        ),
        empty="no queues",
    )
    print_table(
        ("worker", "build", "queues", "steps", "draining"),
        (
            (w.id, w.build, ", ".join(w.queues), f"{w.steps}/{w.concurrency}", w.draining)
            for w in fleet.workers
        ),
        empty="\nno live workers",
        title="\nworkers",
    )


async def _read(reader: FleetReader) -> Fleet:
    try:
        return await reader.read()
    finally:
        await reader.close()
