"""pytest plugin: what stands in for the operating system under WebAssembly.

There are no threads, no processes and no sockets there. The body loop needs none of them; the tests
below do, and are skipped by name.
"""

import asyncio
import time
from asyncio import events
from collections.abc import Sequence

import pytest

from worker.runtime import watchdog

NOT_HERE = {
    # test: why
    "test_a_body_that_does_not_come_to_rest_is_interrupted": "the watchdog is a thread",
    "test_a_task_that_drives_a_body_goes_on_after_the_body_was_interrupted": "the watchdog is a thread",
    "test_a_thread_out_of_time_is_told_once_and_is_over_when_it_has_ended": "starts threads",
    "test_a_thread_tells_its_value_on_the_loop": "starts threads",
    "test_every_watch_that_is_armed_is_looked_at": "the watchdog is a thread",
    "test_a_watch_armed_while_the_thread_is_about_to_sleep_is_looked_at": "the watchdog is a thread",
    "test_a_process_that_is_watched_ends_without_a_word": "starts processes",
    "test_every_process_asks_for_the_same_whatever_its_hash_seed": "starts processes",
    "test_when_strict_the_body_gets_an_error_that_names_call_line_and_cure[subprocess.Popen()]": (
        "starts processes"
    ),
    "test_a_library_between_the_body_and_the_call_is_not_the_place_named": "libraries lie elsewhere",
    "test_an_os_error_keeps_number_and_file_name": "error numbers are not Linux's",
}


class _NoWatchdog:
    """Nobody looks, so nobody interrupts."""

    def __init__(self) -> None:
        self.watches: set[watchdog.Watch] = set()

    def add(self, watch: watchdog.Watch) -> None: ...


class _Sleeper:
    """A selector with nothing to select from."""

    def select(self, timeout: float | None) -> Sequence[object]:
        if timeout is None:
            raise RuntimeError("this loop would wait for ever: nothing is scheduled")
        time.sleep(timeout)
        return ()


class _Loop(asyncio.BaseEventLoop):
    """CPython's own loop, without I/O. Pyodide's belongs to JavaScript and cannot be run until."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Sleeper()

    def _process_events(self, event_list: Sequence[object]) -> None: ...


class _Policy(events._BaseDefaultEventLoopPolicy):
    _loop_factory = _Loop


def pytest_configure() -> None:
    watchdog._watchdog = _NoWatchdog
    events._set_running_loop(None)  # JavaScript's, which counts as running all the time
    events._set_event_loop_policy(_Policy())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = NOT_HERE.get(item.name) or NOT_HERE.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"not under WebAssembly: {reason}"))
