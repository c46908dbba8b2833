"""What the workers of a fleet count, read as Prometheus would: over HTTP from their ``/metrics``."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.kit import WorkerProcess
from tests.ops.kit import endpoint_port, http
from worker.runtime.telemetry import METRICS

KNOWN = {f"workflow_{metric.name}" for metric in METRICS}


class Scrape:
    """One reading of one endpoint."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> int:
        """The sum over the series of ``workflow_<name>`` with these labels; 0 when there is none."""
        full = f"workflow_{name}"
        assert full in KNOWN, f"no metric is called {full}"
        fitting = (s for s in self._samples if s.name == full and labels.items() <= s.labels.items())
        return int(sum(sample.value for sample in fitting))

    def by(self, name: str, label: str) -> dict[str, int]:
        """Value of `label` → count, zeroes left out."""
        found = {s.labels[label]: int(s.value) for s in self._samples if s.name == f"workflow_{name}"}
        return {value: count for value, count in found.items() if count}


async def scrape(worker: WorkerProcess) -> Scrape:
    return await scrape_port(await endpoint_port(worker))


async def scrape_port(port: int) -> Scrape:
    status, text = await http(port, "/metrics")
    assert status == 200, text
    return Scrape(text)
