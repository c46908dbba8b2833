"""`worker run` as a process: its start, its endpoint, its end."""

import json
import re
import signal
import urllib.request

import pytest

from tests.cli.processes import APP, Process, until
from worker.cli.run import UNFINISHED_EXIT_CODE
from world_redis.embedded import EmbeddedServer


def test_a_worker_runs_serves_its_endpoint_and_ends_when_told(process: Process) -> None:
    with process.background("run", "app:wf", "--metrics-port", "0") as worker:
        port = until(worker, "serving /metrics")["port"]
        until(worker, "worker started")
        for path in ("/healthz", "/readyz", "/metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                assert answer.status == 200
        assert process.run("health", "--port", str(port)).returncode == 0
        done = process.run("start", "app:seeded", "--wait", "--timeout", "20s")
        assert (done.returncode, json.loads(done.stdout)) == (0, "0")  # sets iterate the same in every worker
        assert until(worker, "hello from the application")["logger"] == "app"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert process.run("health", "--port", str(port)).returncode == 1


def test_a_step_that_cannot_be_stopped_does_not_hold_the_process(process: Process) -> None:
    with process.background("run", "app:wf", "--metrics-port", "0", "--drain-timeout", "0.2") as worker:
        until(worker, "worker started")
        assert process.run("start", "app:hanging", "[60]").returncode == 0
        assert worker.stdout is not None and worker.stdout.readline() == "hanging\n"
        worker.send_signal(signal.SIGINT)
        assert worker.wait(20) == 0


def test_the_second_signal_ends_the_process_at_once(process: Process) -> None:
    with process.background("run", "app:wf", "--metrics-port", "0", "--drain-timeout", "60") as worker:
        until(worker, "worker started")
        assert process.run("start", "app:hanging", "[60]").returncode == 0
        assert worker.stdout is not None and worker.stdout.readline() == "hanging\n"
        worker.send_signal(signal.SIGTERM)
        until(worker, "once more to leave at once")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 130


def test_a_server_that_is_away_does_not_hold_the_process(
    process: Process, private_server: EmbeddedServer
) -> None:
    url = private_server.url
    arguments = ("run", "app:wf", "--metrics-port", "0", "--drain-timeout", "0.1")
    with process.background(*arguments, WORKFLOW_REDIS_URL=url) as worker:
        until(worker, "worker started")
        private_server.stop()
        until(worker, "waiting for Redis")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) in (0, UNFINISHED_EXIT_CODE)


def test_a_worker_py_of_the_user_shadows_nothing_and_is_named(process: Process) -> None:
    (process.folder / "worker.py").write_text("raise SystemExit('the wrong worker')")
    with process.background("run", "app:wf", "--metrics-port", "0") as worker:
        warning = until(worker, "has the name of a package of stepfleet")
        assert str(process.folder / "worker.py") in warning["message"] and "rename it" in warning["message"]
        until(worker, "worker started")


def test_a_metrics_port_that_is_taken_is_an_error(process: Process) -> None:
    with process.background("run", "app:wf", "--metrics-port", "0") as worker:
        port = str(until(worker, "serving /metrics")["port"])
        refused = process.run("run", "app:wf", "--metrics-port", port)
    assert (refused.returncode, f"port {port} cannot be used" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import nothing_like_this", "ModuleNotFoundError: No module"),
        # raised in code that has no file: the __init__ of a dataclass
        ("RetryPolicy(max_attempts=0)", "ValueError: max_attempts is 0; it is 1 or more"),
    ],
)
def test_a_module_that_fails_to_import_shows_its_own_error(process: Process, line: str, said: str) -> None:
    (process.folder / "broken.py").write_text(f"from worker import RetryPolicy\n{line}")
    done = process.run("run", "broken:wf")
    place = f"{process.folder / 'broken.py'}:2"
    assert done.returncode == 1
    assert f"Error: module 'broken' cannot be imported: {place}: {said}" in done.stderr
    assert "importlib" not in done.stderr and "click" not in done.stderr


def test_a_module_that_is_no_python_names_the_line(process: Process) -> None:
    (process.folder / "broken.py").write_text("\nasync deff work(): ...")
    done = process.run("run", "broken:wf")
    assert done.returncode == 1 and f"{process.folder / 'broken.py'}:2: SyntaxError" in done.stderr


def test_a_registry_of_a_worker_py_is_refused_with_the_cure(process: Process) -> None:
    (process.folder / "worker.py").write_text("wf = 1")
    done = process.run("run", "worker:wf")
    assert done.returncode == 2
    assert "'worker' is the library itself" in done.stderr and "rename your worker.py" in done.stderr


def test_the_path_of_a_file_is_answered_with_its_module(process: Process) -> None:
    (process.folder / "jobs").mkdir()
    (process.folder / "jobs" / "mail.py").write_text(
        "import worker\njobs: worker.Workflows = worker.Workflows()"
    )
    done = process.run("run", "jobs/mail.py")
    assert (done.returncode, "for example jobs.mail:jobs" in done.stderr) == (2, True), done.stderr


def test_a_worker_says_what_it_offers(process: Process) -> None:
    (process.folder / "empty.py").write_text("from worker import Workflows\nwf = Workflows()")
    with process.background("run", "empty:wf", "--metrics-port", "0") as worker:
        assert until(worker, "offers no workflows")["level"] == "warning"
        until(worker, "worker started")
    with process.background("run", "app:wf", "--metrics-port", "0") as worker:
        assert until(worker, "offers")["message"] == "app:wf offers 2 workflows and 2 steps"


def test_a_worker_of_a_parent_that_is_gone_ends(process: Process) -> None:
    with process.background("run", "app:wf", "--metrics-port", "0", STEPFLEET_PARENT="1") as worker:
        assert worker.wait(20) == -signal.SIGKILL


def test_dev_brings_a_server_and_restarts_when_code_changes(process: Process) -> None:
    environment = process.environment
    del environment["WORKFLOW_REDIS_URL"]
    with process.background("dev", "app:wf", "--metrics-port", "0") as dev:
        url = re.sub(r".*WORKFLOW_REDIS_URL=", "", until(dev, "WORKFLOW_REDIS_URL=")["message"].strip())
        until(dev, "worker started")
        assert process.run("start", "app:seeded", "--wait", "--timeout", "20s").returncode == 0
        environment["WORKFLOW_REDIS_URL"] = url
        assert process.run("start", "app:seeded", "--wait", "--timeout", "20s").returncode == 0
        (process.folder / "app.py").write_text(APP + "\n# changed\n")
        until(dev, "a source file changed")
        until(dev, "worker started")
        dev.send_signal(signal.SIGINT)
        assert dev.wait(20) == 0
