"""The alerts ask for what is there: a misspelt name would be silent for ever."""

import re

import pytest

from tests.ops.kit import OPS
from worker.fleet import FLEET_METRICS
from worker.runtime.telemetry import METRICS

ALERTS = (OPS / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
RULES = re.findall(r"- alert: (\w+)\n\s+expr: (.+)", ALERTS)
KNOWN = {f"workflow_{metric.name}": metric for metric in (*METRICS, *FLEET_METRICS)}


def test_every_alert_has_an_expression_of_one_line_and_a_summary() -> None:
    assert len(RULES) == ALERTS.count("- alert:") == ALERTS.count("summary:") > 5
    assert len({name for name, _ in RULES}) == len(RULES)


@pytest.mark.parametrize(("alert", "expression"), RULES)
def test_every_alert_asks_for_metrics_that_exist(alert: str, expression: str) -> None:
    asked = re.findall(r"workflow_\w+", expression)
    assert asked, alert
    assert [name for name in asked if name not in KNOWN] == []


@pytest.mark.parametrize(("alert", "expression"), RULES)
def test_no_alert_counts_the_birth_of_a_series(alert: str, expression: str) -> None:
    """A labelled counter appears with its first event, and a rate does not see that one."""
    rated = re.findall(r"(?:increase|rate)\((workflow_\w+)", expression)
    assert [name for name in rated if KNOWN[name].labels] == [], alert


@pytest.mark.parametrize(("alert", "expression"), RULES)
def test_alerts_group_by_labels_their_metrics_have(alert: str, expression: str) -> None:
    labels = set(re.findall(r"by \((\w+)\)|on \((\w+)\)", expression))
    grouped = {label for pair in labels for label in pair if label}
    for name in re.findall(r"workflow_\w+", expression):
        assert grouped <= set(KNOWN[name].labels) | {"instance", "job"}, alert
