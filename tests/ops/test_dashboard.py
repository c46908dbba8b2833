"""The dashboard and the table of metrics follow from the code."""

import json
from typing import Any

import pytest

from ops import dashboard, generate
from worker.fleet import FLEET_METRICS
from worker.runtime.telemetry import METRICS

STALE = "run `python -m ops.generate`"


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dashboard.render())["panels"]
    return found


def test_the_dashboard_is_not_stale() -> None:
    assert dashboard.PATH.read_text() == dashboard.render(), STALE


def test_the_table_of_metrics_is_not_stale() -> None:
    text = generate.PAGE.read_text()
    assert text == generate.page(text), STALE


def test_the_top_row_is_rescue() -> None:
    row, *first = panels()[:5]
    assert row["title"].startswith("Rescue")
    shown = [panel["targets"][0]["expr"] for panel in first]
    assert shown == [
        f"sum(increase(workflow_{name}[$__range]))"
        for name in (
            "inline_owned_recoveries_total",
            "inline_backstop_wakes_armed_total",
            "queue_backstop_wakes_armed_total",
            "rescues_fired_total",
        )
    ]


def test_every_metric_has_one_panel() -> None:
    titles = [panel["description"].split(":")[0] for panel in panels() if panel["type"] != "row"]
    assert sorted(titles) == sorted(f"workflow_{metric.name}" for metric in (*METRICS, *FLEET_METRICS))


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= dashboard.GRID
        taken |= cells


def test_a_new_metric_is_in_the_dashboard_without_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "ROWS", dashboard.ROWS[:-1])
    assert "workflow_loop_stall_seconds" in dashboard.render()
