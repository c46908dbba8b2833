"""One thread looks at the watches that are armed, and sleeps while there are none."""

import threading

import pytest

from worker.runtime import watchdog
from worker.runtime.watchdog import Watch


class Seen(Watch):
    """Says when it was looked at."""

    def __init__(self) -> None:
        super().__init__(60)
        self.looked = threading.Event()

    def look(self) -> None:
        self.looked.set()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread sleeps as soon as it has seen nothing once."""
    monkeypatch.setattr(watchdog, "_TICK", 0.0005)
    monkeypatch.setattr(watchdog, "_IDLE", 1)


def test_every_watch_that_is_armed_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_current", watchdog._Watchdog())
    for _ in range(100):
        watch = Seen()
        watch.arm()
        assert watch.looked.wait(10)
        watch.disarm()


def test_a_watch_armed_while_the_thread_is_about_to_sleep_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_looked, may_sleep = threading.Event(), threading.Event()

    class Slow(watchdog._Watchdog):
        def _look(self) -> None:
            super()._look()
            has_looked.set()
            may_sleep.wait()

    monkeypatch.setattr(watchdog, "_current", Slow())
    first, second = Seen(), Seen()
    first.arm()
    assert first.looked.wait(10)
    first.disarm()
    assert has_looked.wait(10)
    second.arm()
    may_sleep.set()
    assert second.looked.wait(10)
    second.disarm()
