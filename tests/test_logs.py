"""Log output: configured by the command line alone, and only when nobody else has."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from worker.runtime import logs


@pytest.fixture(autouse=True)
def _untouched() -> Iterator[None]:
    """A process whose logging nobody has configured."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    structlog.reset_defaults()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_records_of_library_and_application_become_json_lines() -> None:
    out = io.StringIO()
    assert logs.configure(stream=out)
    logging.getLogger("worker.intake").warning("redelivered", extra={"run_id": "wrun_1", "number": 2})
    logging.getLogger("app").info("%d orders", 7)
    structlog.get_logger("app").info("paid", amount=3)
    first, second, third = lines(out)
    assert (first["message"], first["level"], first["logger"]) == ("redelivered", "warning", "worker.intake")
    assert (first["run_id"], first["number"]) == ("wrun_1", 2)
    assert second["message"] == "7 orders"
    assert (third["message"], third["amount"]) == ("paid", 3)


def test_an_exception_is_part_of_its_record() -> None:
    out = io.StringIO()
    logs.configure(stream=out)
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("app").exception("failed")
    (record,) = lines(out)
    assert "ValueError: no" in str(record["exception"])


def test_a_terminal_gets_text() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    logs.configure(stream=out)
    logging.getLogger("app").warning("hello")
    assert "hello" in out.getvalue() and "{" not in out.getvalue()


def test_the_level_is_obeyed() -> None:
    out = io.StringIO()
    logs.configure("WARNING", stream=out)
    logging.getLogger("app").info("quiet")
    assert out.getvalue() == ""


def test_an_application_that_has_configured_logging_is_left_alone() -> None:
    mine = logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(mine)
    assert not logs.configure()
    assert logging.getLogger().handlers == [mine]


def test_importing_the_package_configures_nothing() -> None:
    import worker.runtime.worker  # noqa: F401

    assert logging.getLogger().handlers == []
    assert not structlog.is_configured()
