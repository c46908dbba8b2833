"""What a worker counts, and how it is read."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import REGISTRY, Counter
from prometheus_client.parser import text_string_to_metric_families

from worker.runtime.counters import BUCKETS
from worker.runtime.endpoint import Endpoint, PortTaken
from worker.runtime.telemetry import METRICS, Telemetry, attributes


def read(endpoint: Endpoint, path: str, accept: str = "") -> tuple[int, str]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{endpoint.port}{path}", headers={"Accept": accept} if accept else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def serving(
    telemetry: Telemetry, *, port: int | None = 0, alive: str = "", ready: str = ""
) -> Iterator[Endpoint]:
    endpoint = Endpoint(telemetry, alive=lambda: alive, ready=lambda: ready, port=port, host="127.0.0.1")
    endpoint.start()
    try:
        yield endpoint
    finally:
        endpoint.stop()


def test_every_metric_of_the_table_is_an_attribute_and_the_other_way_round() -> None:
    assert {metric.attribute for metric in METRICS} == attributes()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rules(metric: object) -> None:
    name, kind, help = metric.name, metric.kind, metric.help  # type: ignore[attr-defined]
    assert name.endswith("_total") == (kind == "counter")
    assert name.endswith("_seconds") == (kind == "histogram")
    assert help


def test_buckets_reach_from_a_millisecond_to_an_hour() -> None:
    assert (BUCKETS[0], BUCKETS[-1]) == (0.001, 3600)
    assert list(BUCKETS) == sorted(BUCKETS)


def test_two_workers_in_one_process_count_apart() -> None:
    first, second = Telemetry(), Telemetry()
    first.rescues_fired.inc()
    assert first.registry.get_sample_value("workflow_rescues_fired_total") == 1
    assert second.registry.get_sample_value("workflow_rescues_fired_total") == 0


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_metrics_of_worker_and_application_are_served_together(accept: str) -> None:
    telemetry = Telemetry()
    telemetry.dispatch_rows.labels("owned-recovery").inc(3)
    theirs = Counter("orders_total", "orders of the application")
    theirs.inc(7)
    try:
        with serving(telemetry) as endpoint:
            status, text = read(endpoint, "/metrics", accept)
    finally:
        REGISTRY.unregister(theirs)
    assert status == 200
    lines = text.splitlines()
    assert 'workflow_dispatch_rows_total{row="owned-recovery"} 3.0' in lines
    assert "orders_total 7.0" in lines
    assert text.count("# EOF") == (1 if accept else 0)
    if not accept:
        assert len(list(text_string_to_metric_families(text))) > len(METRICS)


def test_a_broken_collector_of_the_application_does_not_hide_ours() -> None:
    class Broken:
        broken = False

        def collect(self) -> list[object]:
            if self.broken:
                raise RuntimeError("no database")
            return []

    collector = Broken()
    REGISTRY.register(collector)  # type: ignore[arg-type]
    collector.broken = True
    try:
        with serving(Telemetry()) as endpoint:
            status, text = read(endpoint, "/metrics")
    finally:
        REGISTRY.unregister(collector)  # type: ignore[arg-type]
    assert status == 200
    assert "workflow_rescues_fired_total 0.0" in text


@pytest.mark.parametrize(
    ("alive", "ready", "health", "readiness"),
    [
        ("", "", (200, "ok\n"), (200, "ok\n")),
        ("", "draining", (200, "ok\n"), (503, "draining\n")),
        ("the event loop hangs", "", (503, "the event loop hangs\n"), (503, "the event loop hangs\n")),
    ],
)
def test_liveness_and_readiness_are_two_questions(
    alive: str, ready: str, health: tuple[int, str], readiness: tuple[int, str]
) -> None:
    with serving(Telemetry(), alive=alive, ready=ready) as endpoint:
        assert read(endpoint, "/healthz") == health
        assert read(endpoint, "/readyz") == readiness
        assert read(endpoint, "/")[0] == 404


def test_a_port_asked_for_and_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} cannot be used"), serving(Telemetry(), port=port):
            pass


def test_the_default_port_taken_means_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("worker.runtime.endpoint.DEFAULT_METRICS_PORT", port)
        with serving(Telemetry(), port=None) as endpoint:
            assert endpoint.port != port
            assert read(endpoint, "/healthz")[0] == 200
