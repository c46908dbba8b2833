"""``worker top``: one view of workers, what they hold, queues and rates."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO

from rich.console import Console

from tests.acceptance.kit import ROOT
from tests.lua.kit import StoreKit
from tests.ops.test_fleet import announce
from worker.cli.top import Look, View, render
from worker.fleet import Fleet, FleetReader, InFlight, LiveWorker, QueueFigures, Rate


async def top(kit: StoreKit, *options: str) -> str:
    namespace = kit.world.keys.namespace
    command = [sys.executable, "-m", "worker.cli.main", "top", "--interval", "0.1", *options]
    found = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=ROOT,
        env={"WORKFLOW_REDIS_URL": kit.url, "WORKFLOW_NAMESPACE": namespace},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


async def test_json_has_the_whole_view(kit: StoreKit) -> None:
    await announce(kit.world, "w1")
    session = await kit.session("w1")
    await session.inline("s1")
    view = json.loads(await top(kit, "--json"))
    (worker,) = view["fleet"]["workers"]
    (delivery,) = view["fleet"]["deliveries"]
    (queue,) = view["fleet"]["queues"]
    assert (worker["id"], worker["steps"], worker["concurrency"]) == ("w1", 1, 10)
    assert (delivery["run_id"], delivery["worker"], delivery["lease_left"]) == (session.run_id, "w1", 30)
    assert (queue["in_flight"], queue["delayed"], queue["workers"]) == (1, 1, 1)
    assert view["rates"] == [{"queue": "default", "arriving": 0, "leaving": 0}]


async def test_once_prints_it_for_people(kit: StoreKit) -> None:
    await announce(kit.world, "w1")
    session = await kit.session("w1")
    text = await top(kit, "--once")
    assert "1 worker  1 open run " in text
    assert session.run_id in text
    assert "30.0 s" in text


LOOK = Look("wf")


def shown(view: View, look: Look = LOOK, **options: str) -> list[str]:
    out = StringIO()
    console = Console(file=out, width=look.width or 200, markup=False, highlight=False)
    console.print(render(view, look, **options))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def delivery(left: float, worker: str = "w1", kind: str = "run", key: str = "wake") -> InFlight:
    return InFlight(f"m{left:g}", 2, kind, "wrun_1", key, 1, worker, left, "default")


def test_the_view_names_who_holds_what_until_when() -> None:
    fleet = Fleet(
        at=0,
        queues=[QueueFigures("default", ready=2, lapsed=1, in_flight=2, oldest_seconds=4, workers=1)],
        workers=[LiveWorker("w1", "b1", ["default", "mail"], 10, 3, 7, True, 30.0, 0.5)],
        deliveries=[delivery(0, "dead"), delivery(3, kind="step", key="s4"), delivery(9)],
        open_runs=5,
        parked_runs=1,
        dead_letters=2,
        rescues=6,
    )
    lines = shown(View(fleet, [Rate("default", 1.5, 0.5)]))
    assert lines[0] == "wf 00:00:00 UTC 1 worker 5 open runs 1 parked 2 dead letters 6 rescues so far"
    assert "w1 b1 default, mail 3/10 7 2 3.0 s draining" in lines
    assert "default 3 4.0 s 1.5 0.5 2 1 0 1" in lines
    assert "wrun_1 wake lapsed m0 2 1 default dead" in lines
    assert "wrun_1 step s4 3.0 s m3 2 1 default w1" in lines
    assert shown(View(fleet, []), Look("wf", lines=1))[-1] == "and 2 more"


def test_a_worker_that_has_said_nothing_for_a_lease_is_silent_and_serves_no_queue() -> None:
    workers = [
        LiveWorker("w1", "b1", ["default"], 10, 0, 0, False, 30.0, 9.8),
        LiveWorker("w2", "b1", ["default"], 10, 0, 0, False, 30.0, 40.2),
    ]
    fleet = Fleet(0, [QueueFigures("default", workers=2)], workers, [], 0, 0, 0, 0)
    lines = shown(View(fleet, []))
    assert "2 workers (1 silent)" in lines[0]
    assert "w1 b1 default 0/10 0 0 at work" in lines
    assert "w2 b1 default 0/10 0 0 silent 40 s" in lines
    assert "default 0 0 0 0 1" in lines
    slower = replace(fleet, workers=[replace(worker, lease=60.0) for worker in workers])
    assert "2 workers 0 open runs" in shown(View(slower, []))[0], "each by the lease it lives by"


def test_ids_and_states_stay_whole_on_a_terminal_of_80_columns() -> None:
    worker, run = "billing-worker-7d9f8b6c5d-x2x4z-1-abcdef", "wrun_01M8MRFFG5576C903A7D7RJY00"
    fleet = Fleet(
        at=0,
        queues=[QueueFigures("default", ready=1234, in_flight=1, oldest_seconds=4, workers=1)],
        workers=[LiveWorker(worker, "2026-11-29.4", ["default", "mail", "pdf"], 10, 3, 7, True, 30.0, 0.5)],
        deliveries=[InFlight("ijFGNi2sVZU-1", 2, "step", run, "s4", 1, worker, 12.5, "default")],
        open_runs=5,
        parked_runs=1,
        dead_letters=2,
        rescues=6,
    )
    lines = shown(View(fleet, [Rate("default", 1.5, 0.5)]), Look("wf", width=80))
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(worker) and line.endswith("draining") for line in lines)
    assert any(line.startswith(f"{run} step s4 12.5 s") for line in lines)
    assert "default 1234 4.0 s 1.5 0.5 1 0 0 1" in lines


def test_an_empty_fleet_says_so_and_old_figures_say_that_they_are_old() -> None:
    nothing = Fleet(0, [], [], [], 0, 0, 0, 0)
    lines = shown(View(nothing, []), trouble="no answer from Redis; what follows is old")
    assert lines[0] == "no answer from Redis; what follows is old"
    assert {"no live workers", "no queues yet", "nothing in flight"} <= set(lines)


async def test_names_of_users_are_not_taken_for_markup(kit: StoreKit, reader: FleetReader) -> None:
    await announce(kit.world, "w1", build="[bold]b[/bold]")
    fleet = await reader.read()
    assert any("[bold]b[/bold]" in line for line in shown(View(fleet, [])))


# --- live -------------------------------------------------------------------------------------------


async def test_the_live_view_ends_at_ctrl_c(kit: StoreKit) -> None:
    await announce(kit.world, "w1")
    process, terminal = _on_a_terminal(kit.url, kit.world.keys.namespace)
    try:
        await asyncio.to_thread(_read_until, terminal, "1 worker ")
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(_read_until, terminal, "")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def _on_a_terminal(url: str, namespace: str) -> tuple[subprocess.Popen[bytes], int]:
    """`worker top`, and the terminal it writes to."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.cli.main", "top", "--interval", "0.1"],
        cwd=ROOT,
        env={"WORKFLOW_REDIS_URL": url, "WORKFLOW_NAMESPACE": namespace, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    return process, ours


def _read_until(terminal: int, text: str) -> None:
    """Read what is shown until it has `text`; without a text until the program ends."""
    seen, end = "", time.monotonic() + 20
    while not text or text not in seen:
        assert select.select([terminal], [], [], end - time.monotonic())[0], f"no {text!r} in {seen}"
        try:
            seen += os.read(terminal, 4096).decode(errors="replace")
        except OSError:  # the other end is closed
            assert not text, seen
            return
