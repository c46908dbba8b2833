"""``worker runs``: find runs, look into them, cancel and retry them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from ..sdk.client import Client
from ..sdk.history import RunInfo
from ..sdk.listing import STATUSES
from ..sdk.run import Run
from .commands import Failure, Program, json_option, with_client
from .inspect import Inspection, Pending, inspect
from .output import console, cut, json_line, print_json, print_table, text_of

_STEP_COLUMNS = (
    *("step", "name", "state", "mode", "delivery", "owner", "lease left", "epoch"),
    *("starts", "errors", "crashes", "waits for"),
)
_NAME = 14  # characters before the value of a fact

run_ids = click.argument("run_ids", metavar="RUN_ID...", nargs=-1, required=True)


@click.group(cls=Program)
def runs() -> None:
    """Find runs and look into them."""


# --- looking ------------------------------------------------------------------------------------


@runs.command("ls")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs in this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Go on after the page that printed it.")
@json_option
@with_client
async def list_runs(
    client: Client,
    workflow: str | None,
    status: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List runs: open ones first, the newest on top."""
    try:
        page = await client.list_runs(workflow=workflow, status=status, limit=limit, cursor=cursor)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json({"runs": page.runs, "cursor": page.cursor})
        return
    print_table(
        ("run", "workflow", "status", "queue", "created (UTC)", "ended (UTC)", "events"),
        ((r.run_id, _name(r), _status(r), r.queue, r.created_at, r.ended_at, r.events) for r in page.runs),
        empty="no runs",
        drop=("events", "queue", "ended (UTC)", "created (UTC)"),
    )
    if page.cursor:
        click.echo(f"more: --cursor {page.cursor}")


@runs.command()
@click.argument("run_id")
@json_option
@with_client
async def show(client: Client, run_id: str, as_json: bool) -> None:
    """Show a run: its steps with owner and lease, its messages, what it waits for."""
    found = await inspect(client, run_id)
    if as_json:
        print_json(found)
        return
    _print_run(found)
    print_table(
        _STEP_COLUMNS,
        (_step_row(found, number) for number in range(len(found.steps))),
        empty="\nno steps yet",
        title="\nsteps",
        drop=("epoch", "mode", "delivery", "crashes", "starts", "errors", "waits for"),
    )  # fmt: skip
    _print_errors(found)
    _print_waiting(found)


@runs.command()
@click.argument("run_id")
@json_option
@with_client
async def events(client: Client, run_id: str, as_json: bool) -> None:
    """Print a run's log, one event a line, by slot."""
    listed = await client.get_run(run_id).events()
    if as_json:
        print_json(listed)
        return
    print_table(
        ("slot", "at (UTC)", "event", "of", "name", "detail"),
        ((e.slot, e.at, e.type, short(e.correlation_id), e.name, _line(e.detail)) for e in listed),
        empty="no events",
        one_line=True,
    )


# --- changing -----------------------------------------------------------------------------------


@runs.command()
@run_ids
@click.option("--reason", default="", help="Recorded with the request.")
@json_option
@with_client
async def cancel(client: Client, run_ids: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Ask runs to cancel: their code may clean up first."""
    for run_id in run_ids:
        await client.get_run(run_id).cancel(reason=reason)
        _say(as_json, run_id=run_id, done="cancel requested")


@runs.command()
@run_ids
@click.option("--reason", default="", help="Recorded with the end.")
@json_option
@with_client
async def terminate(client: Client, run_ids: tuple[str, ...], reason: str, as_json: bool) -> None:
    """End runs at once, whatever their code is doing."""
    for run_id in run_ids:
        await client.get_run(run_id).terminate(reason=reason)
        _say(as_json, run_id=run_id, done="terminated")


@runs.command()
@run_ids
@json_option
@with_client
async def retry(client: Client, run_ids: tuple[str, ...], as_json: bool) -> None:
    """Try parked runs again; start failed or cancelled ones anew, as new runs."""
    for run_id in run_ids:
        try:
            again: Run[Any] = await client.get_run(run_id).retry()
        except ValueError as error:
            raise Failure(str(error)) from error
        done = "tried again" if again.run_id == run_id else f"started anew as {again.run_id}"
        _say(as_json, run_id=run_id, done=done, new_run_id=again.run_id)


def _say(as_json: bool, *, run_id: str, done: str, **more: Any) -> None:
    if as_json:
        print_json({"run_id": run_id, "done": done, **more})
    else:
        click.echo(f"{run_id}: {done}")


# --- in words -----------------------------------------------------------------------------------


def _print_run(found: Inspection) -> None:
    run, problem = found.run, found.problem
    facts = {
        "run": run.run_id,
        "workflow": _name(run),
        "status": _status(run) + (" (cancel requested)" if run.cancel_requested and not run.finished else ""),
        "input": _value(found.input),
        "result": _value(found.result) if run.status == "completed" and not run.continued_to else None,
        "error": f"{problem.error} [{problem.code}]" if problem else None,
        "cause": problem.cause if problem else None,
        "raised at": problem.raised_at if problem else None,
        "parked": run.parked_detail,
        "queue": run.queue,
        "created": run.created_at,
        "started": run.started_at,
        "ended": run.ended_at,
        "parent": run.parent_run_id,
        "retried from": run.retried_from,
        "continued to": run.continued_to,
        "attributes": dict(run.attributes),
    }
    for name, value in facts.items():
        if text := text_of(value):
            click.echo(f"{name + ':':{_NAME}}{text}{' UTC' if isinstance(value, datetime) else ''}")
    for warning in found.warnings:
        click.echo(f"{'warning:':{_NAME}}{warning}")


def _value(value: Any) -> str:
    """A value on one line; --json has the whole of it."""
    return cut(json_line(value), max(40, console().width - _NAME))


def _step_row(found: Inspection, number: int) -> tuple[Any, ...]:
    step = found.steps[number]
    running = step.state == "running" and not step.child_run_id
    return (
        short(step.id),
        step.name,
        step.state,
        step.mode,
        f"{step.owner}#{step.owner_number}" if running else "",
        found.workers.get(step.owner, "") if running else "",
        f"{step.lease_left:.1f} s" if running and step.owner_live else ("lapsed" if running else ""),
        step.epoch or "",
        step.starts,
        step.errors,
        step.crashes,
        found.waits_for[number],
    )


def _print_errors(found: Inspection) -> None:
    """What the steps that failed, or try again, have raised last."""
    raised = [step for step in found.steps if step.error]
    if raised:
        click.echo("\nerrors")
    for step in raised:
        click.echo(f"{short(step.id)} {step.name}: {step.error}")
        if step.cause:
            click.echo(f"    cause: {step.cause}")
        if step.raised_at:
            click.echo(f"    raised at {step.raised_at}")
    if raised or found.problem:
        click.echo(f"whole values and tracebacks: runs show {found.run.run_id} --json")


def _print_waiting(found: Inspection) -> None:
    print_table(
        ("message", "key", "kind", "queue", "state", "number", "attempt", "worker", "due/deadline (UTC)"),
        (_message_row(message) for message in found.messages),
        empty="\nno messages",
        title="\nmessages",
        drop=("number", "attempt", "kind", "queue", "key"),
    )
    if found.waits:
        print_table(
            ("wait", "due (UTC)"), ((short(w.id), w.due) for w in found.waits), empty="", title="\ntimers"
        )
    if found.hooks:
        print_table(
            ("hook", "name", "received", "token"),
            ((short(h.id), h.name, h.received, h.token) for h in found.hooks),
            empty="",
            title="\nhooks",
            drop=("received", "name"),
        )
    click.echo(f"\nrescue: {found.rescue}")


def _message_row(message: Pending) -> tuple[Any, ...]:
    return (
        message.id,
        message.key,
        message.kind,
        message.queue,
        message.state,
        message.number,
        message.attempt,
        message.worker,
        message.until,
    )


def _name(run: RunInfo) -> str:
    return run.workflow if run.version == 1 else f"{run.workflow} v{run.version}"


def _status(run: RunInfo) -> str:
    return f"parked: {run.parked}" if run.parked else run.status


def short(correlation_id: str) -> str:
    """``step_000...012`` → ``step 12``: for reading."""
    kind, _, digits = correlation_id.partition("_")
    return f"{kind} {int(digits)}" if digits.isdigit() else correlation_id


def _line(detail: Mapping[str, Any]) -> str:
    return cut(text_of({name: value for name, value in detail.items() if name != "traceback"}))
