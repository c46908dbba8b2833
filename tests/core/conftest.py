"""Bodies built by a test are dropped at its end, and must not leave a trace."""

import gc
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.core.player import Player


@pytest.fixture
def no_body_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test starts is closed, without one unraisable error or warning."""
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    Player.started.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield
        for player in Player.started:
            player.close()
        Player.started.clear()
        gc.collect(1)
    assert not unraisable, [each.exc_value for each in unraisable]
