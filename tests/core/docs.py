"""Writes the tables of ``docs/ownership.md`` from the code: ``python -m tests.core.docs``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.core.situations import Case, cases
from worker.core import dispatch
from worker.core.dispatch import SPEC_REDELIVERS, Row
from worker.runtime.telemetry import METRICS
from worker.settings import Settings, variable_of

PAGE = Path(__file__).parents[2] / "docs" / "ownership.md"
NEW = (Row.INLINE, Row.QUEUE)

SETTINGS = (
    "inline_ownership_lease_seconds",
    "max_inline_steps",
    "max_step_crashes",
    "max_queue_deliveries",
    "loop_stall_seconds",
    "inline_ownership",
    "queue_owned_backstop",
)
NUMBERS = (
    "inline_owned_recoveries_total",
    "inline_backstop_wakes_armed_total",
    "queue_backstop_wakes_armed_total",
    "rescues_fired_total",
    "redeliveries_total",
    "superseded_total",
    "single_flight_absorbed_total",
    "unsafe_settles_total",
    "dispatch_rows_total",
    "liveness_heals_total",
)


def render(page: str) -> str:
    """`page` with every generated part made anew."""
    for name, table in (("dispatch", rows()), ("settings", settings()), ("metrics", metrics())):
        part = f"<!-- generated: {name} -->\n\n{table}\n\n<!-- end -->"
        before, _, rest = page.partition(f"<!-- generated: {name} -->")
        page = before + part + rest.partition("<!-- end -->")[2]
    return page


def rows() -> str:
    """The rows in the words of the module, and where the same step lands when something is off."""
    said = _said()
    lines = ["| row | the step | what is done | ownership off | queue backstop off |", "|" + "---|" * 5]
    for row in Row:
        step, action = said[row]
        off = [_lands(row, ownership=False), _lands(row, backstop=False)]
        lines.append(f"| `{row}` | {step} | {action} | {off[0]} | {off[1]} |")
    return "\n".join(lines)


def _said() -> dict[str, tuple[str, str]]:
    """Row → (the step, what is done), from the module's own table."""
    found = {}
    for line in (dispatch.__doc__ or "").splitlines():
        if line.startswith("|") and not line.startswith(("| row", "|---")):
            names, step, action = (cell.strip() for cell in line.strip("|").split("|"))
            found.update(dict.fromkeys(names.split(", "), (step, action)))
    return found


def _lands(row: Row, *, ownership: bool = True, backstop: bool = True) -> str:
    if row in NEW:
        return ""
    changed = {replace(case, ownership=ownership, backstop=backstop).row for case in _normal(row)}
    return " ".join(f"`{each}`" for each in sorted(changed - {row}))


def _normal(row: Row) -> list[Case]:
    """The situations in which `row` is met with both switches on."""
    on = [case for case in cases() if case.ownership and case.backstop and case.spec >= SPEC_REDELIVERS]
    return [case for case in on if case.row is row]


def settings() -> str:
    lines = ["| setting | default | |", "|---|---|---|"]
    for name in SETTINGS:
        field = Settings.model_fields[name]
        default = int(field.default) if isinstance(field.default, bool) else field.default
        lines.append(f"| `{variable_of(name)}` | {default} | {field.description} |")
    return "\n".join(lines)


def metrics() -> str:
    known = {metric.name: metric for metric in METRICS}
    lines = ["| metric | counts |", "|---|---|"]
    for name in NUMBERS:
        labels = f"{{{','.join(known[name].labels)}}}" if known[name].labels else ""
        lines.append(f"| `workflow_{name}{labels}` | {known[name].help} |")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
