"""``worker start``: start a run from a shell."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

import click
import orjson

from ..sdk.client import Client
from ..sdk.definitions import WorkflowDefinition
from ..sdk.durations import parse_duration
from ..sdk.errors import SerializationError, WorkflowRunFailedError, error_text
from ..sdk.run import Run
from .commands import Failure, checked_queue, client_settings, connected, json_option, refuse
from .inspect import served_queues
from .loading import load_workflow
from .output import print_json

_EXAMPLE = """'["cus_123"]' or '{"customer": "cus_123"}'"""


@click.command()
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.argument("arguments", metavar="[ARGS_JSON]", default="[]")
@click.option("--key", help="Idempotency key: a repeat answers the same run.")
@click.option("--queue", callback=checked_queue, help="Queue of the run.")
@click.option("--delay", help="Start later: 30s, 2h, 1d.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option("--timeout", help="With --wait: give up after this time.")
@json_option
def start(
    workflow: str,
    arguments: str,
    key: str | None,
    queue: str | None,
    delay: str | None,
    wait: bool,
    timeout: str | None,
    as_json: bool,
) -> None:
    """Start a run of MODULE:WORKFLOW. ARGS_JSON is a JSON list or object, or `-` to read it from stdin."""
    if timeout is not None and not wait:
        refuse("--timeout is how long --wait waits: add --wait, or leave it out")
    definition = load_workflow(workflow)
    text = sys.stdin.read() if arguments == "-" else arguments
    _check_form(text)
    try:
        given, named = definition.signature.parse_arguments(text.encode())
        chosen = definition.with_options(idempotency_key=key, queue=queue, delay=delay)
        seconds = None if timeout is None else timedelta(seconds=parse_duration(timeout))
    except SerializationError as error:
        refuse(f"ARGS_JSON: {error}")
    except ValueError as error:  # a key that is no text, a length of time that is none
        refuse(str(error))
    try:
        asyncio.run(_start(chosen, given, named, wait, seconds, as_json))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def _check_form(text: str) -> None:
    """What a shell's quotes have spoiled is told by an example; what does not fit is not helped by it."""
    try:
        if isinstance(orjson.loads(text), list | dict):
            return
        said = "ARGS_JSON is not a JSON list or object"
    except orjson.JSONDecodeError as error:
        said = f"ARGS_JSON is not JSON ({error})"
    refuse(f"{said}; write a list or an object in quotes, such as {_EXAMPLE}")


async def _start(
    workflow: WorkflowDefinition[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wait: bool,
    timeout: timedelta | None,
    as_json: bool,
) -> None:
    async with connected(client_settings(), namespace=workflow.registry.namespace) as client:
        run = await client.start(workflow, *args, **kwargs)
        if not wait:
            print_json({"run_id": run.run_id}) if as_json else click.echo(run.run_id)
            return
        if not as_json:
            click.echo(run.run_id, err=True)
        result = await _end_of(client, run, timeout)
        print_json({"run_id": run.run_id, "result": result} if as_json else result)


async def _end_of(client: Client, run: Run[Any], timeout: timedelta | None) -> Any:
    """Its result; what keeps it, or ends the waiting, is said on stderr."""
    try:
        await _tell_when_nobody_serves(client, run)
        return await run.return_value(timeout=timeout)
    except WorkflowRunFailedError as error:
        what = error_text(error.error) if error.error is not None else "it said nothing"
        raise Failure(f"run {run.run_id} failed: {what} [{error.error_code}]") from error
    except asyncio.CancelledError:  # Ctrl-C
        click.echo(f"no longer waiting; run {run.run_id} goes on", err=True)
        raise


async def _tell_when_nobody_serves(client: Client, run: Run[Any]) -> None:
    info = await run.info()
    served = sorted(await served_queues(await client.world()))
    if not info.finished and info.queue not in served:
        others = f"; those that live take from {', '.join(map(repr, served))}" if served else ""
        click.echo(f"no live worker takes from queue {info.queue!r}, the run waits for one{others}", err=True)
