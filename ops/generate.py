"""``python -m ops.generate``: write again what follows from the tables of metrics.

That is Grafana's dashboard and the table in docs/operations.md. A test fails when one of them is stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from worker.fleet import FLEET_METRICS
from worker.runtime.telemetry import METRICS, Metric

from . import dashboard

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
BEGIN, END = "<!-- metrics, from `python -m ops.generate` -->\n", "<!-- end of metrics -->\n"


def page(text: str) -> str:
    """The page with its table of metrics as it must be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = f"\nOf every worker:\n\n{_table(METRICS)}\nOf the exporter:\n\n{_table(FLEET_METRICS)}\n"
    return f"{before}{BEGIN}{tables}{END}{after}"


def _table(metrics: Iterable[Metric]) -> str:
    lines = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `workflow_{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    dashboard.PATH.write_text(dashboard.render())
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
