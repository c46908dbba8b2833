"""``worker demo``: a worker is killed in the middle of a step, and the order goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from world_redis.embedded import EmbeddedServer

from .. import demo as story
from ..runtime import logs
from ..sdk.client import Client
from ..sdk.history import StepInfo
from ..sdk.run import Run
from ..settings import Settings
from .commands import Failure
from .fleet import LEASE_SECONDS, NAMESPACE, Fleet, Member, pid_of
from .inspect import Inspection, inspect
from .output import table_of
from .runs import short
from .screen import Screen

LIMIT = 55.0  # seconds for all of it
Condition = Callable[[Inspection], bool]

_LOOK = 0.15  # seconds between two looks at the store
_MID_STEP = 0.8  # seconds the step has run when its worker is killed
_SHOWN = ("inline_owned_recoveries", "rescues_fired", "redeliveries", "dispatch_rows", "steps", "runs")


@click.command()
def demo() -> None:
    """Run an order on two workers, kill one of them in the middle of a step, watch the order go on."""
    logs.configure("WARNING")
    try:
        asyncio.run(_demo())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise click.exceptions.Exit(130) from None
    except TimeoutError:
        raise Failure(f"the demo did not come to its end within {LIMIT:g} s") from None


async def _demo() -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As asyncio does it for Ctrl-C: at an await, never between a process and the note of its id.
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    screen = Screen()
    with EmbeddedServer.start() as server, Fleet(server.url) as fleet:
        screen.say("A private server and two workers, A and B.")
        screen.say(f"The lease is {LEASE_SECONDS} s here, so that nobody waits long; usually it is 30 s.")
        async with asyncio.timeout(LIMIT):
            await fleet.start("A", "B")
            settings = Settings.load(
                redis_url=server.url,
                namespace=NAMESPACE,
                partitions=1,
                inline_ownership_lease_seconds=LEASE_SECONDS,
            )
            async with Client.from_settings(settings) as client:
                run = await client.start(story.order, "4711", "ann", ["tea", "cup", "pot", "tray"])
                with screen.live():
                    survivor = await _play(client, run, fleet, screen)
                await _report(client, run, survivor, screen)


async def _play(client: Client, run: Run[str], fleet: Fleet, screen: Screen) -> Member:
    """The story, scene by scene. Answers the worker that is left."""
    watch = _Watch(client, run, fleet, screen)
    screen.say(f"Order started: {run.run_id}")
    found = await watch.until(lambda seen: _charging(seen) is not None)
    step = _charging(found)
    assert step is not None
    victim = fleet.by_pid(pid_of(found.workers[step.owner]))
    await watch.during(_MID_STEP)
    screen.say(f"KILL -9 worker {victim.name} (pid {victim.pid}), which owns {short(step.id)} {step.name}")
    victim.kill()
    epoch = step.epoch
    screen.say("Its lease runs out; nobody has to notice the death.")
    found = await watch.until(lambda seen: (_step(seen, step.id).epoch or 0) > epoch)
    again = _step(found, step.id)
    survivor = fleet.by_pid(pid_of(found.workers[again.owner]))
    screen.say(f"Worker {survivor.name} has taken over with {again.owner}#{again.owner_number}, new epoch")
    found = await watch.until(lambda seen: bool(seen.hooks))
    screen.say("The order waits for a person, and holds no worker. Approving as `ann`.")
    await client.resume(found.hooks[0].token, story.Approval("ann"))
    found = await watch.until(lambda seen: seen.run.finished)
    screen.say(f"Result: {await run.return_value(timeout=5)!r}")
    return survivor


def _charging(seen: Inspection) -> StepInfo | None:
    """The running step worth a murder, once its owner is known."""
    steps = [s for s in seen.steps if s.name == story.charge_card.name and s.state == "running"]
    return next((s for s in steps if s.owner_live and s.owner in seen.workers), None)


def _step(seen: Inspection, id: str) -> StepInfo:
    return next(step for step in seen.steps if step.id == id)


class _Watch:
    """Looks at the run again and again, and shows it."""

    def __init__(self, client: Client, run: Run[str], fleet: Fleet, screen: Screen) -> None:
        self._client, self._run, self._fleet, self._screen = client, run, fleet, screen

    async def look(self) -> Inspection:
        seen = await inspect(self._client, self._run.run_id)
        for line in self._fleet.log_lines():
            self._screen.say(line)
        self._screen.show(seen, {member.pid: member.name for member in self._fleet.members})
        return seen

    async def until(self, condition: Condition) -> Inspection:
        while True:
            seen = await self.look()
            if condition(seen):
                return seen
            if seen.run.finished:
                raise Failure(f"the order ended early: {seen.run.status}")
            await asyncio.sleep(_LOOK)

    async def during(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await self.look()
            await asyncio.sleep(_LOOK)


async def _report(client: Client, run: Run[str], survivor: Member, screen: Screen) -> None:
    events = await run.events()
    rows = [(e.slot, f"{e.at:%H:%M:%S.%f}"[:-3], e.type, short(e.correlation_id), e.name) for e in events]
    screen.print("\nThe order's log, all of it:")
    screen.print(table_of(("slot", "at (UTC)", "event", "of", "name"), rows))
    screen.print(f"\nWhat worker {survivor.name} counted (http://127.0.0.1:{survivor.port}/metrics):")
    for line in await asyncio.to_thread(_counters, survivor.port):
        screen.print(f"  {line}")
    worker = _program()
    screen.print("\nTry it yourself, in two terminals in this folder:")
    screen.print(f"  {worker} dev worker.demo:wf")
    screen.print(f"""  {worker} start worker.demo:order '["4711", "ann", ["tea", "cup"]]'""")
    screen.print(f"It waits for a person: `{worker} runs show RUN_ID` names the token.")
    screen.print(f"""  {worker} hooks resume TOKEN '{{"by": "ann"}}'""")


def _program() -> str:
    """How this program is called from here: a virtual environment may not be active."""
    called = Path(sys.argv[0])
    return "worker" if shutil.which("worker") or called.name != "worker" else os.path.relpath(called)


def _counters(port: int) -> Iterable[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        text = response.read().decode()
    names = tuple(f"workflow_{name}_total" for name in _SHOWN)
    lines = [line for line in text.splitlines() if line.startswith(names)]
    return [line.removesuffix(".0") for line in lines if not line.endswith(" 0.0")]
