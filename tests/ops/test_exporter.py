"""``worker exporter``: once per fleet, visible when it cannot see, never without bound."""

from pathlib import Path

from tests.acceptance.kit import until
from tests.lua.kit import StoreKit
from tests.ops.kit import ExporterProcess, http
from worker.cli.exporter import MOST_QUEUES, OF_FLEET, OF_QUEUE, OTHER, QueueLabels, gauges
from worker.fleet import FLEET_METRICS, Fleet, QueueFigures
from worker.runtime.telemetry import METRICS
from world_redis.embedded import EmbeddedServer
from world_redis.world import RedisWorld


async def test_the_exporter_shows_what_waits_and_survives_the_absence_of_redis(
    private_server: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    async with RedisWorld(private_server.url, namespace=namespace) as world:
        await StoreKit(world, private_server.url).start()
    async with ExporterProcess(tmp_path, private_server.url, namespace) as exporter:
        seen = await exporter.gauges()
        assert seen["workflow_exporter_up"] == 1
        assert seen['workflow_backlog{queue="default"}'] == 1
        assert seen["workflow_open_runs"] == 1
        assert seen["workflow_workers"] == 0
        assert await http(exporter.port, "/readyz") == (200, "ok\n")

        private_server.kill()

        async def blind() -> bool:
            return await exporter.gauges() == {"workflow_exporter_up": 0}

        await until("the exporter says that it sees nothing, and says nothing else", blind)
        assert await http(exporter.port, "/healthz") == (200, "ok\n")
        assert (await http(exporter.port, "/readyz"))[0] == 503

        private_server.restart()

        async def sees() -> bool:
            return (await exporter.gauges()).get('workflow_backlog{queue="default"}') == 1

        await until("the exporter sees again", sees)
        assert exporter.end() == 0
    assert exporter.log.count("the fleet cannot be read") == 1, "said once, not at every scrape"


def test_every_row_of_the_table_has_a_value_and_none_other() -> None:
    names = {metric.name for metric in FLEET_METRICS}
    assert names == OF_FLEET.keys() | OF_QUEUE.keys() | {"exporter_up"}


def test_no_gauge_has_the_name_of_something_workers_count() -> None:
    families = {metric.attribute for metric in METRICS}
    assert not families & {metric.name for metric in FLEET_METRICS}


def test_queues_have_a_bounded_number_of_labels_and_keep_them() -> None:
    def reading(*names: str) -> dict[str, float]:
        queues = [QueueFigures(name, ready=1, oldest_seconds=2, workers=1) for name in names]
        families = gauges(Fleet(0, queues, [], [], 0, 0, 0, 0), labels)
        backlog = next(family for family in families if family.name == "workflow_backlog")
        return {sample.labels["queue"]: sample.value for sample in backlog.samples}

    labels = QueueLabels(MOST_QUEUES)
    names = [f"q{n:03}" for n in range(MOST_QUEUES)]
    assert reading(*names) == dict.fromkeys(names, 1)
    later = reading("a-new-one", "another", *names)
    assert later == dict.fromkeys(names, 1) | {OTHER: 2}
