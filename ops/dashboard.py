"""The dashboard of the fleet, from the tables of what workers and the exporter publish.

`ROWS` says where a metric stands; its kind and labels decide the query. A metric with no place in ROWS gets
one in the last row, so that a new one is never missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worker.fleet import FLEET_METRICS
from worker.runtime.telemetry import METRICS, Metric

PATH = Path(__file__).parent / "grafana" / "fleet.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
QUANTILES = (0.5, 0.95)
PER_LINE, HEIGHT, GRID = 4, 7, 24

# The first row is shown as totals: rescue is the first thing to look at.
ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Rescue, over the time shown",
        (
            "inline_owned_recoveries_total",
            "inline_backstop_wakes_armed_total",
            "queue_backstop_wakes_armed_total",
            "rescues_fired_total",
        ),
    ),
    (
        "Queues",
        (
            *("backlog", "oldest_message_seconds", "deliveries_in_flight", "queue_workers"),
            *("delayed_messages", "leases_lapsed", "redeliveries_total", "prologues_total"),
        ),
    ),
    (
        "Runs and steps",
        (
            *("open_runs", "runs_total", "steps_total", "step_seconds"),
            *("time_to_first_step_seconds", "step_gap_seconds", "replays_total", "input_drifts_total"),
        ),
    ),
    (
        "Trouble",
        (
            *("parked_runs", "parked_total", "dead_letters_kept", "dead_letters_total"),
            *("superseded_total", "single_flight_absorbed_total", "passed_over_payloads_total"),
            *("liveness_heals_total", "unsafe_settles_total"),
        ),
    ),
    (
        "Workers",
        (
            *("workers", "workers_draining", "in_flight", "live_bodies"),
            *("round_trips_total", "transitions_total", "dispatch_rows_total", "loop_stall_seconds"),
            "exporter_up",
        ),
    ),
)


def render() -> str:
    """The text of fleet.json."""
    dashboard = {
        "uid": "stepfleet",
        "title": "Fleet",
        "tags": ["stepfleet"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": list(_panels()),
    }
    return json.dumps(dashboard, indent=2) + "\n"


# --- queries --------------------------------------------------------------------------------------


def queries(metric: Metric, *, total: bool = False) -> list[tuple[str, str]]:
    """(query, legend) of a metric. `total`: over all the time shown, as one number."""
    name, fleet = f"workflow_{metric.name}", metric in FLEET_METRICS
    by = f" by ({', '.join(metric.labels)})" if metric.labels else ""
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or metric.attribute
    if metric.kind == "histogram":
        levels = ", ".join(("le", *metric.labels))
        rate = f"sum by ({levels}) (rate({name}_bucket[$__rate_interval]))"
        return [
            (
                f"histogram_quantile({q}, {rate})",
                f"{legend} p{q * 100:.0f}".removeprefix(metric.attribute + " "),
            )
            for q in QUANTILES
        ]
    if total:
        return [(f"sum(increase({name}[$__range]))", legend)]
    if metric.kind == "counter":
        query = f"sum{by} (rate({name}[$__rate_interval]))"
    else:  # the exporter's are of the whole fleet already
        query = f"{'max' if fleet else 'sum'}{by} ({name})"
    # A labelled series is born with its first event; until then there were none of them, which is 0.
    return [(query if fleet or not by else f"{query} or on() vector(0)", legend)]


# --- panels ---------------------------------------------------------------------------------------


def _panels() -> Iterator[dict[str, Any]]:
    metrics = {metric.name: metric for metric in (*METRICS, *FLEET_METRICS)}
    placed = {name for _, names in ROWS for name in names}
    rest = tuple(name for name in metrics if name not in placed)
    id, y = 0, 0
    for number, (title, names) in enumerate((*ROWS, ("More", rest)) if rest else ROWS):
        id += 1
        yield {"id": id, "type": "row", "title": title, "gridPos": _place(0, y, GRID, 1), "panels": []}
        y += 1
        for index, name in enumerate(names):
            id += 1
            column, line = index % PER_LINE, index // PER_LINE
            place = _place(column * GRID // PER_LINE, y + line * HEIGHT, GRID // PER_LINE, HEIGHT)
            yield _panel(metrics[name], id, place, total=number == 0)
        y += -(-len(names) // PER_LINE) * HEIGHT


def _panel(metric: Metric, id: int, place: dict[str, int], *, total: bool) -> dict[str, Any]:
    targets = [
        {"refId": "AB"[index], "datasource": DATASOURCE, "expr": query, "legendFormat": legend}
        for index, (query, legend) in enumerate(queries(metric, total=total))
    ]
    return {
        "id": id,
        "type": "stat" if total else "timeseries",
        "title": metric.attribute.replace("_", " "),
        "description": f"workflow_{metric.name}: {metric.help}",
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": _unit(metric, total), "min": 0}, "overrides": []},
        "options": {"graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}} if total else {},
        "targets": targets,
    }


def _unit(metric: Metric, total: bool) -> str:
    if metric.name.endswith("_seconds"):
        return "s"
    return "cps" if metric.kind == "counter" and not total else "short"


def _place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}
