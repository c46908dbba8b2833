"""Every scenario works, and what a step costs in calls, bytes and messages stays what it is. No times."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from bench.__main__ import SCENARIOS, measure
from bench.figures import LINK, Figure, Growth, Result, in_both_floors, in_floors, median, plain, quantile
from bench.marks import Mark, Marks
from bench.peers import PEERS
from bench.report import as_json, as_markdown
from bench.scale import Scale

APART = ("costs", "peers")  # looked at by tests of their own


@pytest.fixture(scope="module")
def costs() -> dict[str, float]:
    """Values of the scenario that counts, by name."""
    result = asyncio.run(measure("costs", Scale.TINY))
    return {figure.name: figure.value for figure in result.figures}


# --- what is counted -------------------------------------------------------------------------------


def test_an_inline_step_is_one_script_call_and_no_message(costs: dict[str, float]) -> None:
    assert 0.99 <= costs["script calls per inline step"] < 1.1
    assert costs["messages per inline step"] == 0


def test_queued_steps_that_come_and_end_together_share_their_calls_and_have_one_message_each(
    costs: dict[str, float],
) -> None:
    """With the takes, the passes of their run and its wakes."""
    assert costs["script calls per queued step"] <= 1
    assert 1 <= costs["messages per queued step"] < 1.6


def test_a_step_sends_and_brings_no_more_bytes_than_it_did(costs: dict[str, float]) -> None:
    assert costs["bytes to the server per inline step"] < 1200
    assert costs["bytes from the server per inline step"] < 450
    assert costs["bytes to the server per queued step"] < 1100
    assert costs["bytes from the server per queued step"] < 700


def test_a_trivial_step_keeps_at_most_300_bytes_in_the_server(costs: dict[str, float]) -> None:
    assert 0 < costs["Redis memory per trivial step"] <= 300


# --- the scenarios ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in APART])
async def test_every_scenario_measures_something(name: str) -> None:
    result = await measure(name, Scale.TINY)
    assert result.figures or result.growth
    assert all(math.isfinite(figure.value) and figure.value >= 0 for figure in result.figures)
    if result.growth:
        assert all(len(row) == len(result.growth.columns) for row in result.growth.rows)
        assert set(result.growth.plotted) <= set(result.growth.columns)


async def test_a_peer_that_is_not_installed_is_named_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = await measure("peers", Scale.TINY)
    skipped = [figure.name for figure in result.figures if math.isnan(figure.value)]
    assert skipped == [f"{peer.name}: not installed" for peer in PEERS]


# --- figures and reports ---------------------------------------------------------------------------


def test_quantiles_are_values_that_were_measured() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert quantile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert quantile([7.0], 0.99) == 7.0


def test_a_figure_says_whether_it_meets_its_target() -> None:
    assert in_floors("gap", 500e-6, 250e-6, at_most=2) == Figure(
        "gap", 500.0, "µs", 2.0, target="≤ 2 floors", met=True
    )
    assert plain("bytes", 301, "bytes", at_most=300).met is False
    assert plain("rate", 2.0, "×", at_least=1.6).met is True


def test_a_row_in_both_floors_is_judged_by_the_floor_alone() -> None:
    judged, beside = in_both_floors("gap", 500e-6, 250e-6, 125e-6, at_most=2)
    assert judged == in_floors("gap", 500e-6, 250e-6, at_most=2)
    assert beside == Figure("gap", 500.0, "µs", 4.0, LINK)


def test_a_rate_leaves_out_the_start_and_the_end(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    steady = [Mark(10_000_000_000 + index * 10_000_000, 1) for index in range(100)]
    jumpy = [Mark(0, 1), *steady[1:-1], Mark(99_000_000_000, 1)]
    marks.path.write_bytes(
        b"".join(at.to_bytes(8, "little") + pid.to_bytes(8, "little") for at, pid in jumpy)
    )
    assert marks.rate() == pytest.approx(100)


def test_reports_carry_every_figure_and_every_row() -> None:
    growth = Growth("steps", ("steps", "µs"), [(10, 1.5), (100, 1.25)], ("µs",))
    results = {"some_scenario": Result([plain("a figure", 12.345, "ms", at_most=10)], growth)}
    text = as_markdown({"machine": "this one"}, results)
    for part in ("some scenario", "| a figure | 12.3 ms |", "**not met**", "| 100 | 1.25 |", "this one"):
        assert part in text
    assert '"a figure"' in as_json({}, results)
