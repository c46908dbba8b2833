"""``worker config``, ``health`` and ``doctor``: is this process, this server, this fleet all right?"""

from __future__ import annotations

import asyncio
import http.client
import textwrap
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import click

from world_redis.entities import Run
from world_redis.liveness import Breach
from world_redis.runs import parked_runs
from world_redis.survey import survey
from world_redis.world import RedisWorld

from ..addresses import url_of_dev
from ..fleet import FleetReader
from ..settings import DEFAULT_METRICS_PORT, Settings, Shown, variable_of
from .commands import Failure, client_settings, connected, json_option
from .inspect import refusal, served_queues
from .loading import shadows
from .output import Grid, console, counted, print_json, print_table

_MOMENT = 0.5  # seconds
_INDENT = "    "
_URL = variable_of("redis_url")

Verdict = Literal["ok", "warning", "problem"]


@click.command()
@json_option
def config(as_json: bool) -> None:
    """Show every setting, its value and where it comes from. Passwords are left out."""
    settings = Settings.load()
    of_dev = None if settings.redis_url else url_of_dev()
    rows = [
        row._replace(value=of_dev, source="worker dev") if of_dev and row.variable == _URL else row
        for row in settings.shown()
    ]
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    _print_settings(rows)
    if of_dev:
        click.echo(
            f"{_URL} is not set: commands find the server of the `worker dev` that runs in this folder; "
            "`worker run`, `worker exporter` and Python clients need the variable",
            err=True,
        )
    for line in shadows():
        click.echo(f"warning: {line}", err=True)


def _print_settings(rows: Sequence[Shown]) -> None:
    """A table; on a terminal too narrow for it, the meaning of each setting below it."""
    columns, screen = ("variable", "value", "from", "meaning"), console()
    if not screen.is_terminal or Grid.of(columns, rows, width=None, drop=()).wants <= screen.width:
        return print_table(columns, rows, empty="")
    for row in rows:
        click.echo(f"{row.variable}={row.value} ({row.source})")
        for line in textwrap.wrap(row.meaning, screen.width - len(_INDENT)):
            click.echo(f"{_INDENT}{line}")


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Of the worker's endpoint.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--ready", is_flag=True, help="Ask for readiness instead of liveness.")
@json_option
def health(port: int | None, host: str, ready: bool, as_json: bool) -> None:
    """Ask the worker of this machine how it is: exit code 0 or 1, for container checks."""
    chosen = port or Settings.load().metrics_port or DEFAULT_METRICS_PORT
    path = "/readyz" if ready else "/healthz"
    connection = http.client.HTTPConnection(host, chosen, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        status, text = response.status, response.read().decode(errors="replace").strip()
    except OSError as error:
        status, text = 0, f"no answer on port {chosen}: {error}"
    finally:
        connection.close()
    if as_json:
        print_json({"ok": status == 200, "answer": text})
    if status != 200:
        raise Failure(text)
    if not as_json:
        click.echo(text)


# --- doctor -------------------------------------------------------------------------------------


class Finding(NamedTuple):
    check: str
    verdict: Verdict
    detail: str


@click.command()
@click.option("--deep", is_flag=True, help="Also read every log and finished run.")
@json_option
def doctor(deep: bool, as_json: bool) -> None:
    """Check the server, the namespace and the fleet. Exit code 1 when something is wrong."""
    settings = client_settings()
    findings = asyncio.run(_examine(settings, deep))
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        print_table(("check", "verdict", "detail"), findings, empty="")
    wrong = sum(finding.verdict == "problem" for finding in findings)
    if wrong:
        raise Failure(f"{counted(wrong, 'problem')} found")


async def _examine(settings: Settings, deep: bool) -> list[Finding]:
    findings = [Finding("names", "warning", line) for line in shadows()]
    async with connected(settings) as client:
        world = await client.world()
        findings += [finding async for finding in _server(world)]
        findings += [finding async for finding in _fleet(world)]
        findings += [finding async for finding in _partitions(world, deep)]
    return findings


async def _server(world: RedisWorld) -> AsyncIterator[Finding]:
    info = _parsed(await world.command("INFO"))
    name, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else (
        "Redis", info.get("redis_version", "?"))  # fmt: skip
    yield Finding("server", "ok", f"{name} {version}, up {info.get('uptime_in_seconds', '?')} s")
    policy = info.get("maxmemory_policy", "?")
    yield Finding("eviction", "ok" if policy == "noeviction" else "problem", f"maxmemory-policy {policy}")
    persistent = info.get("aof_enabled") == "1"
    detail = "append-only file on" if persistent else "append-only file off: a crash of the server loses runs"
    yield Finding("persistence", "ok" if persistent else "warning", detail)
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    share = used / limit if limit else 0.0
    verdict: Verdict = "problem" if share > 0.95 else "warning" if share > 0.8 else "ok"
    yield Finding(
        "memory", verdict, f"{used / 2**20:.0f} MiB" + (f", {share:.0%} of the limit" if limit else "")
    )


async def _fleet(world: RedisWorld) -> AsyncIterator[Finding]:
    reader = FleetReader(world.url, namespace=world.keys.namespace, partitions=len(world.partitions))
    try:
        fleet = await reader.read()
    finally:
        await reader.close()
    away = [worker for worker in fleet.workers if worker.silent]
    live = [worker for worker in fleet.workers if not worker.silent]
    draining = sum(worker.draining for worker in live)
    detail = f"{len(live)} live" + (f", {draining} of them draining" if draining else "")
    yield Finding("workers", "ok" if len(live) > draining else "warning", detail)
    for worker in away:
        yield Finding("workers", "warning", f"{worker.id}: silent {worker.seen_seconds:.0f} s")
    builds = sorted({worker.build for worker in fleet.workers})
    if len(builds) > 1:
        yield Finding("builds", "warning", f"several at once: {', '.join(builds)}")
    served = await served_queues(world)
    for figures in fleet.queues:
        if figures.backlog and figures.queue not in served:
            text = f"queue {figures.queue!r} has {counted(figures.backlog, 'message')} and no worker"
            yield Finding("queues", "problem", text)


async def _partitions(world: RedisWorld, deep: bool) -> AsyncIterator[Finding]:
    open_runs, dead = 0, 0
    parked: dict[str, tuple[str, int, str]] = {}
    refused: dict[str, Run] = {}
    breaches: list[Breach] = []
    for partition in world.partitions:
        found = await survey(world, partition, deep=deep)
        open_runs += await world.command("ZCARD", world.keys.partition(partition)[2])
        refused |= found.refused
        breaches += await _lasting(world, partition, found.breaches, deep)
        parked |= await parked_runs(world, partition)
        dead += await world.command("XLEN", world.keys.partition(partition)[5])
    yield Finding("runs", "ok", f"{open_runs} open")
    for run_id, (reason, _, _) in parked.items():
        yield Finding("parked", "warning", f"{run_id}: {reason}")
    for run_id, run in refused.items():
        since = datetime.fromtimestamp(run.refused_since / 1000, UTC)
        yield Finding("refused", "warning", f"{run_id} ({run.workflow}): {refusal(since, run.refused_by)}")
    if dead:
        yield Finding("dead letters", "warning", f"{dead}")
    for breach in breaches:
        yield Finding(breach.rule, "problem", f"{breach.subject}: {breach.detail}")
    if not breaches:
        yield Finding("liveness", "ok", "every open run has a way forward")


async def _lasting(world: RedisWorld, partition: int, breaches: list[Breach], deep: bool) -> list[Breach]:
    """Those that are still there a moment later: a partition at work is not read at one moment."""
    if not breaches:
        return []
    await asyncio.sleep(_MOMENT)
    again = set((await survey(world, partition, deep=deep)).breaches)
    return [breach for breach in breaches if breach in again]


def _parsed(info: Any) -> dict[str, str]:
    lines = (line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return {name: value.strip() for name, value in lines}
