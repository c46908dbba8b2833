"""``worker run`` and ``worker dev``: processes that execute workflows and steps."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from ..addresses import DEV_DATA, embedded_url, resolve
from ..runtime import logs
from ..runtime.build import build_of
from ..runtime.endpoint import Endpoint, PortTaken
from ..runtime.telemetry import Telemetry
from ..runtime.worker import Worker
from ..sdk.client import Client
from ..sdk.default import close_default_clients, use_client
from ..sdk.registry import Workflows
from ..settings import Settings, redact_url
from .commands import Failure, checked_queue, naming_the_server, refuse, waiting_quietly
from .loading import load_registry, shadows
from .output import counted
from .reload import PARENT, end_with_parent, supervise

log = logging.getLogger("worker.cli")

SECOND_SIGNAL_EXIT_CODE = 130
UNFINISHED_EXIT_CODE = 1  # told to stop, and could not within the time
_LAST_GRACE = 8.0  # seconds after the drain's own time
_WAITING_AGAIN = 30.0  # seconds until a log is told once more what the worker waits for

worker_options = [
    click.argument("registries", metavar="MODULE:REGISTRY...", nargs=-1, required=True),
    click.option(
        "-q", "--queue", "queues", callback=checked_queue, multiple=True,
        help="Queue to serve; several: in strict order.",
    ),
    click.option(
        "-c", "--concurrency", type=click.IntRange(1, 10_000), default=10, show_default=True,
        help="Steps at once.",
    ),
    click.option(
        "--metrics-port", type=click.IntRange(0, 65535), help="Of /metrics, /healthz, /readyz; 0: a free one."
    ),
    click.option("--drain-timeout", type=click.FloatRange(0, 3600), help="Seconds steps have at a stop."),
]  # fmt: skip


def with_worker_options(function: Any) -> Any:
    for option in reversed(worker_options):
        function = option(function)
    return function


@click.command()
@with_worker_options
def run(
    registries: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    metrics_port: int | None,
    drain_timeout: float | None,
) -> None:
    """Execute the workflows and steps of MODULE:REGISTRY until told to stop.

    SIGTERM or Ctrl-C: finish what runs and give the rest back. A second one: leave at once.
    """
    _refuse_mixed_up(registries)
    end_with_parent(signal.SIGKILL)  # of a demo that was killed: its server is gone as well
    settings = Settings.load(metrics_port=metrics_port, drain_seconds=drain_timeout)
    leave(serve(registries, settings, queues=queues or ("default",), concurrency=concurrency))


@click.command()
@with_worker_options
@click.option("--reload/--no-reload", default=True, show_default=True, help="Restart when a source changes.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=Path(DEV_DATA),
              show_default=True, help="Directory of the embedded server's data.")  # fmt: skip
def dev(
    registries: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    metrics_port: int | None,
    drain_timeout: float | None,
    reload: bool,
    data: Path,
) -> None:
    """A worker with a server of its own (unless WORKFLOW_REDIS_URL is set), restarted when code changes.

    --no-reload is one process with a terminal, for a debugger.
    """
    settings = Settings.load(metrics_port=metrics_port, drain_seconds=drain_timeout)
    url = settings.redis_url or embedded_url(data)
    if PARENT not in os.environ:  # the supervisor has said it already
        click.echo(_hint(registries[0], settings.redis_url, data), err=True)
    if reload:
        sys.exit(supervise(url))
    end_with_parent()
    settings = settings.model_copy(update={"redis_url": url})
    leave(serve(registries, settings, queues=queues or ("default",), concurrency=concurrency, debugging=True))


def _hint(spec: str, url: str, data: Path) -> str:
    """How to start a run on the server of `worker dev`: its URL, last in the line, is for a copy."""
    start = f"`worker start {spec.partition(':')[0]}:WORKFLOW ARGS_JSON`"
    variable = f"WORKFLOW_REDIS_URL={redact_url(url) if url else embedded_url(data)}"
    if url or data != Path(DEV_DATA):
        return f"worker dev: in another terminal {start}, with {variable}"
    return f"worker dev: in another terminal {start}, in this folder or with {variable}"


# --- one worker ---------------------------------------------------------------------------------


def serve(
    specs: Sequence[str],
    settings: Settings,
    *,
    queues: Sequence[str],
    concurrency: int,
    debugging: bool = False,
) -> int:
    """Run one worker in this process; answers its exit code."""
    logs.configure(settings.log_level)
    for line in shadows():
        log.warning(line)
    registry = load_registry(specs)
    address = settings.url
    _tell_what_is_offered(specs, registry)
    url, server = resolve(address)
    telemetry = Telemetry()
    worker = Worker(
        registry,
        settings.model_copy(
            update={"redis_url": url} | ({"loop_stall_seconds": float("inf")} if debugging else {})
        ),
        queues=queues,
        concurrency=concurrency,
        telemetry=telemetry,
        build=settings.build_id or build_of(registry),
    )
    try:
        endpoint = Endpoint(
            telemetry, alive=lambda: _trouble(worker), ready=lambda: worker.ready, port=settings.metrics_port
        )
    except PortTaken as error:
        raise Failure(str(error)) from error
    endpoint.start()
    _calm_collector()
    _Signals(worker).install()
    try:
        with naming_the_server(settings), waiting_quietly(_WAITING_AGAIN):
            return asyncio.run(_run(worker))
    finally:
        endpoint.stop()
        if server is not None:
            server.stop()


def _calm_collector() -> None:
    """A worker holds thousands of small live objects, and a collection of them all finds nothing: what the
    application has loaded is set apart, and the young are looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _tell_what_is_offered(specs: Sequence[str], registry: Workflows) -> None:
    names = ", ".join(specs)
    if not registry.workflows:
        log.warning("%s offers no workflows: is it the registry they are decorated with?", names)
    workflows, steps = counted(len(registry.workflows), "workflow"), counted(len(registry.steps), "step")
    log.info("%s offers %s and %s", names, workflows, steps)


async def _run(worker: Worker) -> int:
    # What steps start and resume goes where this worker's runs are.
    client = Client.from_settings(worker.settings, namespace=worker.registry.namespace)
    use_client(client, worker.registry.namespace)
    try:
        return await worker.run()
    finally:
        await close_default_clients()


def _trouble(worker: Worker) -> str:
    keeper = worker.keeper
    if keeper is None or (keeper.healthy and keeper.silent_for < worker.settings.loop_stall_seconds):
        return ""
    return f"the event loop has not answered for {keeper.silent_for:.0f} s"


class _Signals:
    """Taken with `signal.signal`: a loop that is blocked cannot run a handler of its own."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asked = False

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            os._exit(SECOND_SIGNAL_EXIT_CODE)
        self._asked = True
        os.write(2, b"stopping: running steps may end; once more to leave at once\n")
        self._worker.drain()
        # The end of a drain speaks to the server; one that is away must not keep the process.
        seconds = self._worker.settings.drain_seconds + _LAST_GRACE
        last = threading.Timer(seconds, os._exit, (UNFINISHED_EXIT_CODE,))
        last.daemon = True
        last.start()


def leave(code: int) -> None:
    """End the process without waiting for threads: a step that overran its time cannot be stopped."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _refuse_mixed_up(registries: Sequence[str]) -> None:
    from .runs import runs

    if registries[0] in runs.commands:
        refuse(f"`worker run` starts a worker; did you mean `worker runs {' '.join(registries)}`?")
