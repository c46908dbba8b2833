"""``worker start``: start a run from a shell."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

import click
import orjson

from ..sdk.definitions import WorkflowDefinition
from ..sdk.durations import parse_duration
from ..sdk.errors import DurationError, SerializationError, WorkflowRunFailedError
from ..sdk.history import error_text
from .commands import Failure, client_settings, connected, json_option, print_json, refuse
from .loading import load_workflow

_EXAMPLE = """'["cus_123"]' or '{"customer": "cus_123"}'"""


@click.command()
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.argument("arguments", metavar="[ARGS_JSON]", default="[]")
@click.option("--key", help="Idempotency key: a repeat answers the same run.")
@click.option("--queue", help="Queue of the run.")
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
    definition = load_workflow(workflow)
    text = sys.stdin.read() if arguments == "-" else arguments
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        refuse(f"ARGS_JSON is not JSON ({error}); write a list or an object in quotes, such as {_EXAMPLE}")
    try:
        given, named = definition.signature.parse_arguments(text.encode())
        chosen = definition.with_options(idempotency_key=key, queue=queue, delay=delay)
        seconds = None if timeout is None else timedelta(seconds=parse_duration(timeout))
    except SerializationError as error:
        refuse(f"ARGS_JSON: {error}; it is a list or an object in quotes, such as {_EXAMPLE}")
    except DurationError as error:
        refuse(str(error))
    asyncio.run(_start(chosen, given, named, wait, seconds, as_json))


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
        try:
            result = await run.return_value(timeout=timeout)
        except WorkflowRunFailedError as error:
            what = error_text(error.error) if error.error is not None else "it said nothing"
            raise Failure(f"run {run.run_id} failed: {what} [{error.error_code}]") from error
        print_json({"run_id": run.run_id, "result": result} if as_json else result)
