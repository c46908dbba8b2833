"""`worker start` says at once what is wrong with a call, and while it waits, what it waits for."""

import asyncio
import os
import signal

import pytest
from click.testing import CliRunner, Result

from tests.cli.processes import Process, until
from worker.cli.main import cli
from worker.sdk.client import Client
from world_redis.roster import announce

ORDER = ("start", "worker.demo:order", '["4711", "ann", []]')
WAIT = ("--wait", "--timeout", "0.2s")
NOBODY = "no live worker takes from queue"


@pytest.fixture(autouse=True)
def _server(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", redis_url)
    monkeypatch.setenv("WORKFLOW_NAMESPACE", namespace)


def shell(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def live_worker(*queues: str, draining: bool = False) -> None:
    async def say() -> None:
        async with Client(os.environ["WORKFLOW_REDIS_URL"]) as client:
            about = {"lease": 30, "queues": queues, "draining": draining}
            await announce(await client.world(), "a worker", about)

    asyncio.run(say())


# --- a queue that nobody serves -----------------------------------------------------------------


def test_waiting_for_a_run_without_any_worker_says_so_in_one_line() -> None:
    result = shell(*ORDER, *WAIT)
    run_id, said, end = result.stderr.splitlines()
    assert said == f"{NOBODY} 'default', the run waits for one"
    assert (result.exit_code, run_id in end) == (1, True)


def test_waiting_on_a_queue_that_no_worker_serves_names_those_that_are_served() -> None:
    live_worker("default", "mail")
    said = shell(*ORDER, *WAIT, "--queue", "wrongq").stderr
    assert f"{NOBODY} 'wrongq', the run waits for one; those that live take from 'default', 'mail'\n" in said
    assert NOBODY not in shell(*ORDER, *WAIT, "--queue", "mail").stderr


def test_a_worker_that_drains_serves_nothing() -> None:
    live_worker("default", draining=True)
    assert NOBODY in shell(*ORDER, *WAIT).stderr


def test_a_queue_may_have_any_name_that_is_text(process: Process) -> None:
    name = "mail {eu}: bulk"
    with process.background("run", "app:wf", "--metrics-port", "0", "-q", name) as worker:
        until(worker, "worker started")
        done = process.run("start", "app:seeded", "--wait", "--timeout", "20s", "--queue", name)
    assert (done.returncode, done.stdout) == (0, '"0"\n'), done.stderr


@pytest.mark.parametrize("name", ["", "q" * 513, "\udcff"])
@pytest.mark.parametrize("command", [ORDER, ("run", "worker.demo:wf")])
def test_a_queue_whose_name_no_key_can_hold_is_refused(command: tuple[str, ...], name: str) -> None:
    result = shell(*command, "--queue", name)
    assert (result.exit_code, "it is text of 1 to 512 bytes" in result.stderr) == (2, True), result.output


# --- called wrongly -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--timeout", "5s"), "add --wait"),
        (("--wait", "--timeout", "soon"), "'soon'"),
        (("--key", ""), "idempotency key"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: tuple[str, ...], said: str) -> None:
    result = shell(*ORDER, *options)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    ("arguments", "helped"),
    [
        ("cus_123", True),
        ("7", True),
        ('"cus_123"', True),
        ("[1, 2, 3, 4]", False),
        ('{"customer": 7}', False),
    ],
)
def test_how_arguments_are_written_is_shown_where_that_is_what_is_wrong(arguments: str, helped: bool) -> None:
    result = shell("start", "worker.demo:order", arguments)
    assert result.exit_code == 2 and "ARGS_JSON" in result.stderr
    assert ("""'["cus_123"]'""" in result.stderr) == helped, result.stderr


# --- ctrl-c -------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_waiting_and_not_the_run(process: Process) -> None:
    with process.background("start", "app:seeded", "--wait") as waiting:
        run_id = until(waiting, "wrun_")["message"].strip()
        until(waiting, NOBODY)
        waiting.send_signal(signal.SIGINT)
        said = waiting.communicate(timeout=20)[1]
    assert (waiting.returncode, said) == (130, f"no longer waiting; run {run_id} goes on\n")
    assert '"pending"' in process.run("runs", "show", run_id, "--json").stdout
