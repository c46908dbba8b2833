"""Log output: configured by the command line alone, and only when nobody else has."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from worker.runtime import logs


@contextmanager
def unconfigured() -> Iterator[io.StringIO]:
    """A process whose logging nobody has configured (pytest has, between fixtures and test)."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    structlog.reset_defaults()
    try:
        yield io.StringIO()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_records_of_library_and_application_become_json_lines() -> None:
    with unconfigured() as out:
        assert logs.configure(stream=out)
        extra = {"run_id": "wrun_1", "number": 2}
        logging.getLogger("worker.intake").warning("redelivered", extra=extra)
        logging.getLogger("app").info("%d orders", 7)
        structlog.get_logger("app").info("paid", amount=3)
    first, second, third = lines(out)
    assert (first["message"], first["level"], first["logger"]) == ("redelivered", "warning", "worker.intake")
    assert (first["run_id"], first["number"]) == ("wrun_1", 2)
    assert second["message"] == "7 orders"
    assert (third["message"], third["amount"]) == ("paid", 3)


def test_an_exception_is_part_of_its_record() -> None:
    with unconfigured() as out:
        logs.configure(stream=out)
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("app").exception("failed")
    (record,) = lines(out)
    assert "ValueError: no" in str(record["exception"])


def test_a_terminal_gets_text() -> None:
    with unconfigured() as out:
        logs.configure(stream=out, json=False)
        logging.getLogger("app").warning("hello")
    assert "hello" in out.getvalue() and "{" not in out.getvalue()


def test_the_level_is_obeyed() -> None:
    with unconfigured() as out:
        logs.configure("WARNING", stream=out)
        logging.getLogger("app").info("quiet")
    assert out.getvalue() == ""


def test_an_application_that_has_configured_logging_is_left_alone() -> None:
    with unconfigured() as out:
        mine = logging.StreamHandler(out)
        logging.getLogger().addHandler(mine)
        assert not logs.configure()
        assert logging.getLogger().handlers == [mine]


IMPORTS = """
import logging, structlog
import worker, worker.runtime.worker, worker.cli.main
assert logging.getLogger().handlers == [] and not structlog.is_configured()
"""


def test_importing_the_package_configures_nothing() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
