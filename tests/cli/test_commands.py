"""The commands that look and change, against a real server."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.ops.test_fleet import announce
from worker.cli.main import cli
from worker.cli.output import print_json
from worker.core.retry import RetryPolicy
from worker.runtime.worker import Worker
from worker.sdk.calls import sleep
from worker.sdk.client import Client
from worker.sdk.errors import FatalError
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows
from worker.settings import Settings
from world_redis.ids import new_run_id

wf = Workflows()


@dataclass
class Approval(BaseHook):
    """A payload that says nothing."""


@wf.step(max_retries=0)
async def add(a: int, b: int) -> int:
    if a < 0:
        raise FatalError("negative")
    return a + b


@wf.workflow
async def total(a: int, b: int = 1) -> int:
    return await add(a, b)


@wf.workflow
async def idle(token: str) -> None:
    async with Approval.wait(token=token) as hook:
        await sleep("1h")
        await hook


@wf.step(retry=RetryPolicy(max_attempts=2, initial=0))
async def fetch() -> None:
    try:
        raise OSError("unplugged")
    except OSError as error:
        raise ConnectionError("no route") from error


@wf.workflow
async def fetching() -> None:
    await fetch()


class Shell:
    """Runs commands as a user would, in one namespace of the shared server."""

    def __init__(self, url: str, namespace: str) -> None:
        self.settings = Settings.load(redis_url=url, namespace=namespace, drain_seconds=1)

    def __call__(self, *arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=input)

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def work_until(self, run_id: str, condition: Callable[[str, int], bool]) -> None:
        """A worker in this process until (status, length of the log) of a run are as wanted."""

        async def work() -> None:
            worker = Worker(wf, self.settings)
            job = asyncio.create_task(worker.run())
            async with Client.from_settings(self.settings) as client, asyncio.timeout(10):
                while True:
                    info = await client.get_run(run_id).info()
                    if condition(info.status, info.events):
                        break
                    await asyncio.sleep(0.01)
            worker.drain()
            assert await job == 0

        asyncio.run(work())


@pytest.fixture
def shell(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", redis_url)
    monkeypatch.setenv("WORKFLOW_NAMESPACE", namespace)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return Shell(redis_url, namespace)


THIS = "test_commands"


@pytest.fixture(autouse=True)
def _this_module_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest imports test files under names of its own; the commands import this one as users would."""
    import sys

    monkeypatch.setitem(sys.modules, THIS, sys.modules[__name__])


def start(shell: Shell, workflow: str, arguments: str) -> str:
    run_id: str = shell.json("start", f"{THIS}:{workflow}", arguments)["run_id"]
    return run_id


# --- starting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["[1, 2]", '{"a": 1, "b": 2}', "[1]"])
def test_a_run_is_started_with_a_list_or_an_object(shell: Shell, arguments: str) -> None:
    run_id = start(shell, "total", arguments)
    (listed,) = shell.json("runs", "ls")["runs"]
    assert (listed["run_id"], listed["workflow"], listed["status"]) == (run_id, "total", "pending")


def test_arguments_can_come_from_stdin(shell: Shell) -> None:
    result = shell("start", f"{THIS}:total", "-", input="[1, 2]")
    assert result.exit_code == 0 and result.stdout.startswith("wrun_")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("[1, 2, 3]", "too many"),
        ('{"c": 1}', "'c'"),
        ('["x"]', "'a'"),
        ("nonsense", "JSON"),
        ("7", "list or object"),
    ],
)
def test_bad_arguments_are_an_error_of_use(shell: Shell, arguments: str, said: str) -> None:
    result = shell("start", f"{THIS}:total", arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert shell.json("runs", "ls")["runs"] == []


def test_a_key_starts_one_run(shell: Shell) -> None:
    first = shell.json("start", f"{THIS}:total", "[1]", "--key", "k")
    assert shell.json("start", f"{THIS}:total", "[1]", "--key", "k") == first


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (f"{THIS}:totla", f"did you mean {THIS}:total?"),
        (f"{THIS}:wf", f"is a registry, which is not a workflow; its workflows: {THIS}:total, {THIS}:idle"),
        (f"{THIS}:add", "which is not a workflow; did you mean"),
        ("worker:wf", "'worker' is the library itself"),
        ("app/jobs.py", "for example app.jobs:WORKFLOW"),
        ("no_such_module:x", "there is no module 'no_such_module'"),
        ("total", "write MODULE:WORKFLOW"),
    ],
)
def test_a_workflow_that_is_not_there(shell: Shell, spec: str, said: str) -> None:
    result = shell("start", spec, "[]")
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


# --- looking ------------------------------------------------------------------------------------


def test_a_finished_run_shows_its_steps_and_its_log(shell: Shell) -> None:
    run_id = start(shell, "total", "[1, 2]")
    shell.work_until(run_id, lambda status, _: status == "completed")
    shown = shell("runs", "show", run_id).stdout
    assert "completed" in shown and "add" in shown and "no messages" in shown
    assert 'input:        {"a":1,"b":2}\n' in shown and "result:       3\n" in shown
    found = shell.json("runs", "show", run_id)
    assert (found["input"], found["result"], found["warnings"]) == ({"a": 1, "b": 2}, 3, [])
    log = shell("runs", "events", run_id).stdout
    assert [word for word in ("run_created", "step_completed", "run_completed") if word not in log] == []
    events = shell.json("runs", "events", run_id)
    assert [event["slot"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["detail"] == {"result": 3}


def test_a_failed_run_says_what_was_raised_and_where(shell: Shell) -> None:
    run_id = start(shell, "total", "[-1]")
    shell.work_until(run_id, lambda status, _: status == "failed")
    assert "error:        FatalError: negative [USER_ERROR]" in shell("runs", "show", run_id).stdout
    log = shell("runs", "events", run_id).stdout
    assert 'error="FatalError: negative"' in log and "Traceback" not in log
    raised = 'raise FatalError("negative")'
    shown = shell.json("runs", "show", run_id)
    assert raised in shown["problem"]["traceback"] and raised in shown["steps"][0]["traceback"]
    last = shell.json("runs", "events", run_id)[-1]["detail"]
    assert raised in last["traceback"] and last["error"] == "FatalError: negative"


def test_an_exhausted_step_shows_its_attempts_its_cause_and_where_it_raised(shell: Shell) -> None:
    run_id = start(shell, "fetching", "[]")
    shell.work_until(run_id, lambda status, _: status == "failed")
    shown = shell("runs", "show", run_id).stdout
    assert (
        "FatalError: step fetch failed in its last attempt: ConnectionError: no route [USER_ERROR]\n" in shown
    )
    assert "cause:        OSError: unplugged\n" in shown
    assert re.search(r"raised at:    \S+test_commands\.py:\d+ in fetch\n", shown)
    assert "step 1 fetch: ConnectionError: no route\n    cause: OSError: unplugged\n    raised at " in shown
    assert f"runs show {run_id} --json" in shown
    found = shell.json("runs", "show", run_id)
    (step,) = found["steps"]
    assert (step["starts"], step["errors"], step["cause"]) == (2, 2, "OSError: unplugged")
    assert "Traceback" in found["problem"]["traceback"]


def test_the_log_counts_a_steps_attempts_wherever_it_runs(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    """The first attempt runs inline, the second one from the queue: one step, one set of log fields."""
    run_id = start(shell, "fetching", "[]")
    with caplog.at_level(logging.WARNING):
        shell.work_until(run_id, lambda status, _: status == "failed")
    told = [vars(record) for record in caplog.records if record.name == "worker.step"]
    assert [(each["message"], each["step"], each["attempt"]) for each in told] == [
        ("step fetch retrying", "s1", 1),
        ("step fetch failed", "s1", 2),
    ]
    (over,) = [vars(record) for record in caplog.records if record.getMessage() == "run failed"]
    assert over["run_id"] == run_id and "message_id" not in over, "its last message is settled"


def test_a_long_value_is_cut_to_a_line_and_whole_as_json(shell: Shell, namespace: str) -> None:
    token = namespace + "x" * 500
    run_id = start(shell, "idle", json.dumps([token]))
    shown = shell("runs", "show", run_id).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("input:")]
    assert len(line) == 200 and line.endswith("...")
    assert shell.json("runs", "show", run_id)["input"] == {"token": token}


def test_a_log_shows_values_as_json_and_times_as_utc(shell: Shell) -> None:
    run_id = start(shell, "total", "[1, 2]")
    log = shell("runs", "events", run_id).stdout
    assert 'input={"a":1,"b":2}' in log and "at (UTC)" in log
    assert re.search(r"created: .* UTC\n", shell("runs", "show", run_id).stdout)


def test_json_has_whole_numbers_of_any_size(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"big": 10**30, "nan": float("nan"), "set": {2, 1}, "at": datetime(2030, 1, 1, tzinfo=UTC)}
    print_json(value)
    read = json.loads(capsys.readouterr().out)
    assert read == {"big": 10**30, "nan": "nan", "set": [1, 2], "at": "2030-01-01T00:00:00+00:00"}


def test_an_open_run_shows_what_it_waits_for(shell: Shell, namespace: str) -> None:
    run_id = start(shell, "idle", json.dumps([namespace]))
    shell.work_until(run_id, lambda _, events: events >= 4)
    found = shell.json("runs", "show", run_id)
    assert [hook["token"] for hook in found["hooks"]] == [namespace]
    assert len(found["waits"]) == 1
    assert {message["key"]: message["state"] for message in found["messages"]}["timer"] == "delayed"
    shown = shell("runs", "show", run_id).stdout
    assert "timers" in shown and "hooks" in shown and "rescue: not armed" in shown


@pytest.mark.parametrize(("reason", "said"), [((), ""), (("--reason", "out of stock"), ": out of stock")])
def test_a_cancelled_run_says_what_its_caller_is_told(
    shell: Shell, namespace: str, reason: tuple[str, ...], said: str
) -> None:
    run_id = start(shell, "idle", json.dumps([namespace]))
    shell("runs", "cancel", run_id, *reason)
    shell.work_until(run_id, lambda status, _: status == "cancelled")
    shown = shell("runs", "show", run_id).stdout
    assert f"error:        RunCancelledError: run {run_id!r} was cancelled{said} [CANCELLED]\n" in shown
    assert "rescue: not armed (the run has ended)" in shown


def test_an_open_hook_says_whom_it_waits_for_and_what_it_has_received(shell: Shell, namespace: str) -> None:
    run_id = start(shell, "idle", json.dumps([namespace]))
    shell.work_until(run_id, lambda _, events: events >= 4)
    for payload in ("5", "[]"):  # neither fits
        shell("hooks", "resume", namespace, payload)
    (hook,) = shell.json("runs", "show", run_id)["hooks"]
    assert (hook["name"], hook["received"], hook["token"]) == ("Approval", 2, namespace)


def test_a_run_that_is_not_there_is_exit_code_1(shell: Shell) -> None:
    for command in ("show", "events", "cancel", "retry", "terminate"):
        result = shell("runs", command, new_run_id(0))
        assert result.exit_code == 1 and "was not found" in result.stderr, result.output
        assert shell("runs", command, "order-7").exit_code == 1


# --- changing -----------------------------------------------------------------------------------


def test_runs_are_cancelled_terminated_and_retried(shell: Shell) -> None:
    run_id = start(shell, "total", "[-1]")
    shell.work_until(run_id, lambda status, _: status == "failed")
    again = shell.json("runs", "retry", run_id)["new_run_id"]
    assert again != run_id
    assert "cancel requested" in shell("runs", "cancel", again, "--reason", "no").stdout
    assert "terminated" in shell("runs", "terminate", again).stdout
    assert shell.json("runs", "ls", "--status", "cancelled")["runs"][0]["run_id"] == again
    late = shell("runs", "cancel", again)
    assert late.exit_code == 1 and "already cancelled" in late.stderr


def test_a_hook_is_resumed(shell: Shell, namespace: str) -> None:
    run_id = start(shell, "idle", json.dumps([namespace]))
    shell.work_until(run_id, lambda _, events: events >= 4)
    assert shell.json("hooks", "resume", namespace, "{}")["run_id"] == run_id
    assert shell("hooks", "resume", namespace, "{").exit_code == 2
    missing = shell("hooks", "resume", "nobody", "{}")
    assert missing.exit_code == 1 and "no open hook" in missing.stderr


# --- the fleet ----------------------------------------------------------------------------------


def test_queues_show_backlog_and_age(shell: Shell) -> None:
    for n in range(3):
        start(shell, "total", f"[{n}]")
    (state,) = shell.json("queues")["queues"]
    assert (state["queue"], state["backlog"], state["in_flight"], state["workers"]) == ("default", 3, 0, 0)
    assert "no live workers" in shell("queues").stdout
    assert "0 workers  3 open runs" in shell("top", "--once", "--interval", "0.1").stdout


def test_doctor_finds_a_healthy_namespace_healthy_and_a_queue_without_workers(shell: Shell) -> None:
    run_id = start(shell, "total", "[1]")
    sick = shell("doctor")
    assert sick.exit_code == 1 and "no worker" in sick.stdout
    shell.work_until(run_id, lambda status, _: status == "completed")
    findings = {finding["check"]: finding for finding in shell.json("doctor", "--deep")}
    assert findings["liveness"]["verdict"] == findings["eviction"]["verdict"] == "ok"


def test_doctor_names_the_worker_that_has_been_silent_for_a_lease_of_its_own(shell: Shell) -> None:
    async def say() -> None:
        async with Client.from_settings(shell.settings) as client:
            await announce(await client.world(), "w1", ago=40)
            await announce(await client.world(), "w2", ago=40, lease=60.0)

    asyncio.run(say())
    about = [(each["verdict"], each["detail"]) for each in shell.json("doctor") if each["check"] == "workers"]
    assert about[0] == ("ok", "1 live")
    assert len(about) == 2 and about[1][0] == "warning" and about[1][1].startswith("w1: silent 4")


@pytest.mark.parametrize(
    ("leaving", "verdict", "said"),
    [
        ([False], "ok", "1 live"),
        ([True], "warning", "1 live, 1 of them draining"),
        ([False, True], "ok", "2 live, 1 of them draining"),
    ],
)
def test_doctor_tells_a_worker_that_takes_nothing_new_from_one_that_does(
    shell: Shell, leaving: list[bool], verdict: str, said: str
) -> None:
    async def say() -> None:
        async with Client.from_settings(shell.settings) as client:
            for number, draining in enumerate(leaving):
                await announce(await client.world(), f"w{number}", draining=draining)

    asyncio.run(say())
    (found,) = [each for each in shell.json("doctor") if each["check"] == "workers"]
    assert (found["verdict"], found["detail"]) == (verdict, said)


def test_doctor_finds_a_run_whose_message_was_lost(shell: Shell) -> None:
    run_id = start(shell, "total", "[1]")

    async def lose() -> None:
        async with Client.from_settings(shell.settings) as client:
            world = await client.world()
            await world.command("DEL", world.keys.partition(0)[1], world.keys.queue(0, "default")[0])

    asyncio.run(lose())
    result = shell("doctor")
    assert result.exit_code == 1
    assert "liveness" in result.stdout and run_id in result.stdout


def test_config_shows_every_setting_without_secrets(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", "redis://:hunter2@nowhere")
    result = shell("config")
    assert result.exit_code == 0
    assert "redis://:***@nowhere" in result.stdout and "hunter2" not in result.output
    assert {row["variable"] for row in shell.json("config")} >= {"WORKFLOW_NAMESPACE", "WORKFLOW_MAX_EVENTS"}


# --- called wrongly -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnus"], "Did you mean `cli runs`?"),
        (["runs", "shwo"], "Did you mean `cli runs show`?"),
        (["run", "ls"], "did you mean `worker runs ls`?"),
        (["run", "show", "wrun_1"], "did you mean `worker runs show wrun_1`?"),
        (["run", "app"], "write MODULE:REGISTRY"),
        (["run"], "Missing argument"),
        (["runs", "ls", "--cursor", "nonsense"], "not a cursor"),
    ],
)
def test_a_wrong_call_is_exit_code_2_and_says_what_was_meant(
    shell: Shell, arguments: list[str], said: str
) -> None:
    result = shell(*arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("command", [["runs", "ls"], ["queues"], ["doctor"], ["run", f"{THIS}:wf"]])
def test_without_a_url_the_variable_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("WORKFLOW_REDIS_URL")
    result = shell(*command)
    assert (result.exit_code, "WORKFLOW_REDIS_URL is not set" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "command", [["runs", "ls"], ["queues"], ["top", "--once"], ["start", f"{THIS}:total", "[1]"]]
)
def test_without_a_url_the_server_of_dev_is_used_while_it_lives(
    shell: Shell, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    monkeypatch.delenv("WORKFLOW_REDIS_URL")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".stepfleet").mkdir()
    record = tmp_path / ".stepfleet" / "server.json"
    if not redis_url.startswith("unix://"):
        pytest.skip("the embedded server alone leaves such a record")
    record.write_text(json.dumps({"socket": redis_url.removeprefix("unix://"), "pid": 1}))
    result = shell(*command)
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "using the server of `worker dev` in ./.stepfleet: WORKFLOW_REDIS_URL is not set\n"
    )
    record.write_text(json.dumps({"socket": str(tmp_path / "gone.sock"), "pid": 1}))
    result = shell(*command)
    assert (result.exit_code, "WORKFLOW_REDIS_URL is not set" in result.stderr) == (2, True)


def test_a_server_that_is_away_is_waited_for_briefly_and_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("worker.cli.commands.PATIENCE", 1.5)
    monkeypatch.setenv("WORKFLOW_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    result = shell("runs", "ls")
    assert result.exit_code == 1
    assert "(WORKFLOW_REDIS_URL=redis://:***@127.0.0.1:1/0)" in result.stderr
    waits = [message for message in caplog.messages if message.startswith("waiting for Redis")]
    assert len(waits) == len(set(waits)) == 1


def test_a_database_the_server_does_not_have_names_the_variable(
    shell: Shell, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", f"{redis_url}?db=9999")
    result = shell("runs", "ls")
    assert result.exit_code == 1 and "WORKFLOW_REDIS_URL=" in result.stderr
    assert "DB index is out of range" in result.stderr


def test_a_bad_setting_is_exit_code_2(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_PARTITIONS", "0")
    result = shell("runs", "ls")
    assert (result.exit_code, "from 1 to 1024" in result.stderr) == (2, True)


def test_every_command_explains_itself(shell: Shell) -> None:
    for name, command in cli.commands.items():
        assert command.help, name
        assert shell(name, "--help").exit_code == 0
