"""Real Prometheus over two real workers and the exporter: a worker dies, and the series say so."""

import asyncio
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import app
from tests.acceptance.kit import Fleet, until
from tests.ops.kit import OPS, ExporterProcess, Prometheus, Sample, endpoint_port
from worker.fleet import FLEET_METRICS
from worker.runtime.telemetry import METRICS
from world_redis.embedded import EmbeddedServer

pytestmark = pytest.mark.needs_prometheus

# Panels of what a healthy fleet never observes: an average of nothing is no number.
NEVER_OBSERVED = ("workflow_loop_stall_seconds",)


@pytest.mark.parametrize(
    "check", [("config", "prometheus.yml"), ("rules", "alerts.yml")], ids=lambda check: check[1]
)
def test_promtool_accepts_what_is_shipped(check: tuple[str, str]) -> None:
    program = shutil.which("promtool")
    assert program is not None
    path = OPS / "prometheus" / check[1]
    found = subprocess.run([program, "check", check[0], path], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
async def test_a_killed_worker_moves_the_series_and_every_panel_has_data(
    server: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    async with (
        Fleet(server.url, namespace, tmp_path) as fleet,
        ExporterProcess(tmp_path, server.url, namespace) as exporter,
    ):
        workers = await asyncio.gather(*(fleet.worker() for _ in range(2)))
        ports = [await endpoint_port(worker) for worker in workers]
        targets = {"workers": ports, "exporter": [exporter.port]}
        async with Prometheus(tmp_path, targets) as prometheus:
            await _holds(prometheus, 'count(workflow_replays_total{job="workers"}) == 2')
            await _holds(prometheus, "workflow_workers == 2")
            await _a_worker_dies(fleet, prometheus)
            await _the_survivor_works(fleet, prometheus)
            await _the_alerts_are_evaluated(prometheus)
            await _every_metric_is_known(prometheus)
            await _every_panel_has_data(prometheus)


async def _a_worker_dies(fleet: Fleet, prometheus: Prometheus) -> None:
    run = await fleet.start(app.held_then_marks)
    (start,) = await fleet.effects.started("a")
    await _holds(prometheus, 'workflow_deliveries_in_flight{queue="default"} == 1')
    await _holds(prometheus, "sum(workflow_inline_owned_recoveries_total) == 0")
    fleet.by_pid(start.pid).kill()
    await fleet.effects.started("a", 2)
    await _holds(prometheus, "sum(workflow_inline_owned_recoveries_total) >= 1")
    await _holds(prometheus, 'sum(workflow_redeliveries_total{kind="run"}) >= 1')
    await _holds(prometheus, 'sum(workflow_dispatch_rows_total{row="owned-recovery"}) >= 1')
    await _holds(prometheus, 'count(up{job="workers"} == 1) == 1')
    fleet.effects.open_gate("a")
    assert await fleet.finished(run) == "completed"
    await _holds(prometheus, 'sum(workflow_runs_total{status="completed"}) >= 1')
    await _holds(prometheus, "workflow_open_runs == 0")
    await _holds(prometheus, "workflow_workers == 1")


async def _the_survivor_works(fleet: Fleet, prometheus: Prometheus) -> None:
    """Twice: what is seen once has no rate yet."""
    for done in (3, 6):
        run = await fleet.start(app.three_marks, f"run-{done}")
        assert await fleet.finished(run) == "completed"
        await _holds(prometheus, f'sum(workflow_steps_total{{step="work"}}) >= {done}')


async def _the_alerts_are_evaluated(prometheus: Prometheus) -> None:
    async def evaluated() -> list[Any]:
        groups = (await prometheus.api("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = await until("every alert is evaluated", evaluated)
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
    # An alert that asks for a series nobody has is silent for ever.
    asked = {name for rule in rules for name in re.findall(r"workflow_\w+", rule["query"])}
    assert [name for name in sorted(asked) if not await prometheus.query(name)] == []


async def _every_metric_is_known(prometheus: Prometheus) -> None:
    """A query of a misspelt metric may have data too: 0 stands where no series is."""
    # Under OpenMetrics a counter's family has no _total.
    known = {name.removesuffix("_total") for name in await prometheus.api("metadata")}
    tables = (*METRICS, *FLEET_METRICS)
    assert [m.name for m in tables if f"workflow_{m.attribute}" not in known] == []


async def _every_panel_has_data(prometheus: Prometheus) -> None:
    empty = []
    for panel in json.loads((OPS / "grafana" / "fleet.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "1m")
            samples = await prometheus.query(query)
            numbers = [sample for sample in samples if not math.isnan(sample.value)]
            if not (numbers or (samples and any(name in query for name in NEVER_OBSERVED))):
                empty.append(query)
    assert empty == []
    recovered = await prometheus.query("sum(increase(workflow_inline_owned_recoveries_total[1m]))")
    assert _only(recovered) > 0, "the top row shows the rescue"


async def _holds(prometheus: Prometheus, condition: str) -> None:
    """Wait until a comparison answers a sample."""
    await until(condition, lambda: prometheus.query(condition))


def _only(samples: list[Sample]) -> float:
    (sample,) = samples
    return sample.value
