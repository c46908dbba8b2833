"""Our counters beside the client library's: the same families, whatever is counted."""

import asyncio
import threading
from collections.abc import Callable, Iterable

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from worker.runtime.counters import BUCKETS, Counter, Counters, Histogram, Histograms
from worker.runtime.worker import Worker
from worker.sdk.client import Client
from worker.sdk.registry import Workflows
from worker.settings import Settings
from world_redis.events import Answer

SECONDS = [0.0, 0.0001, *BUCKETS, 0.3, 59.999, 3600.1, 1e9, -1.0]


def samples(families: Iterable[Metric]) -> list[object]:
    """Names, types, texts and samples, without the moment at which the library first counted."""
    return [
        (family.name, family.type, family.documentation, sample.name, sample.labels, sample.value)
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def test_a_histogram_tells_what_the_librarys_tells() -> None:
    theirs = prometheus_client.Histogram(
        "work_seconds", "help", ["step"], registry=CollectorRegistry(), buckets=BUCKETS
    )
    ours = Histograms("work_seconds", "help", ["step"])
    for seconds in SECONDS:
        theirs.labels("charge").observe(seconds)
        ours.labels("charge").observe(seconds)
    theirs.labels("rest").observe(1)
    ours.labels("rest").observe(1)
    assert samples(ours.collect()) == samples(theirs.collect())


def test_a_counter_tells_what_the_librarys_tells() -> None:
    theirs = prometheus_client.Counter("ends_total", "help", ["step", "how"], registry=CollectorRegistry())
    ours = Counters("ends_total", "help", ["step", "how"])
    for labels, count in ((("charge", "ok"), 3), (("charge", '"no"\n'), 1), (("", "ok"), 0)):
        theirs.labels(*labels).inc(count)
        ours.labels(*labels).inc(count)
    assert samples(ours.collect()) == samples(theirs.collect())


def test_without_labels_it_is_there_before_the_first_count() -> None:
    family = Counters("ends_total", "help")
    counter = family.labels()
    assert [sample.value for each in family.collect() for sample in each.samples] == [0]
    counter.inc()
    assert family.labels() is counter and counter.value == 1


@pytest.mark.parametrize("values", [(), ("a",), ("a", "b", "c")])
def test_the_wrong_number_of_labels_is_refused(values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Counters("ends_total", "help", ["step", "how"]).labels(*values)


def test_it_is_read_while_labels_are_added() -> None:
    family, done = Counters("ends_total", "help", ["step"]), threading.Event()

    def count() -> None:
        for number in range(20_000):
            family.labels(str(number)).inc()
        done.set()

    counting = threading.Thread(target=count)
    counting.start()
    try:
        while not done.is_set():
            for each in family.collect():
                # One that has just been added may not have been moved yet.
                assert all(sample.value in (0, 1) for sample in each.samples)
    finally:
        counting.join()
    assert sum(sample.value for each in family.collect() for sample in each.samples) == 20_000


async def test_a_worker_moves_them_from_the_thread_of_its_loop_alone(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its step threads and its keeper are at work meanwhile."""
    wf, renewed, moved_by = Workflows(), threading.Event(), set[int]()

    @wf.step
    def until_renewed() -> bool:
        return renewed.wait(10)

    @wf.workflow
    async def order() -> bool:
        return await until_renewed()

    def noted(move: Callable[..., None]) -> Callable[..., None]:
        def note(*args: object) -> None:
            moved_by.add(threading.get_ident())
            move(*args)
            if worker.telemetry.round_trips.labels("renew").value:
                renewed.set()

        return note

    settings = Settings.load(redis_url=redis_url, namespace=namespace, inline_ownership_lease_seconds=1)
    worker = Worker(wf, settings)
    monkeypatch.setattr(Counter, "inc", noted(Counter.inc))
    monkeypatch.setattr(Histogram, "observe", noted(Histogram.observe))
    job = asyncio.create_task(worker.run())
    async with Client(redis_url, settings=settings) as client:
        assert await (await client.start(order)).return_value(timeout=20)
    worker.drain()
    await job
    assert moved_by == {threading.get_ident()}


def test_however_a_label_is_spelled_it_is_one_count() -> None:
    theirs = prometheus_client.Counter("answers_total", "help", ["answer"], registry=CollectorRegistry())
    ours = Counters("answers_total", "help", ["answer"])
    for answer in (Answer.OK, Answer.OK.value, Answer.OK, Answer.STALE):
        theirs.labels(answer).inc()
        ours.labels(answer).inc()
    assert samples(ours.collect()) == samples(theirs.collect())
