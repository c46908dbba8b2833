"""``worker hooks``: send payloads to waiting runs."""

from __future__ import annotations

import sys

import click
import orjson

from ..sdk.client import Client
from .commands import Program, json_option, refuse, with_client
from .output import print_json


@click.group(cls=Program)
def hooks() -> None:
    """Send payloads to waiting runs."""


@hooks.command()
@click.argument("token")
@click.argument("payload", metavar="PAYLOAD_JSON")
@click.option("--key", help="Idempotency key: a repeat delivers nothing more.")
@json_option
@with_client
async def resume(client: Client, token: str, payload: str, key: str | None, as_json: bool) -> None:
    """Send PAYLOAD_JSON (`-`: from stdin) to the hook that waits under TOKEN."""
    text = sys.stdin.read() if payload == "-" else payload
    try:
        data = orjson.dumps(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        refuse(f"the payload is not JSON: {error}")
    info = await client.resume_encoded(token, data, idempotency_key=key)
    if as_json:
        print_json({"run_id": info.run_id, "hook_id": info.hook_id})
    else:
        click.echo(f"delivered to {info.run_id}")
