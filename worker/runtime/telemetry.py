"""What a worker counts. `METRICS` is the whole list; every name begins with ``workflow_``.

Labels are bounded: names of workflows, steps, scripts, rows and answers, never ids. Each worker has a
registry of its own, so that a reload or a second worker in a process registers nothing twice; the
default registry, where an application puts its own metrics, is served beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_type_hints

from prometheus_client import REGISTRY, CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric as Family

from .counters import Counter, Counters, Histogram, Histograms

log = logging.getLogger("worker.telemetry")


class Metric(NamedTuple):
    name: str  # without the prefix; a counter's ends in _total
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """Its name in `Telemetry`."""
        return self.name.removesuffix("_total")


# fmt: off
METRICS: tuple[Metric, ...] = (
    # ownership
    Metric("inline_owned_recoveries_total", "counter", "steps started again under a later delivery"),
    Metric("inline_backstop_wakes_armed_total", "counter", "passes that met an inline step owned elsewhere"),
    Metric("queue_backstop_wakes_armed_total", "counter", "passes that met a queued step running elsewhere"),
    Metric("rescues_fired_total", "counter", "wakes sent because the owner of a running step was gone"),
    Metric("single_flight_absorbed_total", "counter", "deliveries of a run or step at work here already"),
    Metric("superseded_total", "counter", "writes refused: somebody later had taken over", ("what",)),
    Metric("unsafe_settles_total", "counter", "messages given away under a running step they own; a bug"),
    # decisions
    Metric("dispatch_rows_total", "counter", "rows of the dispatch table met by pending steps", ("row",)),
    Metric("transitions_total", "counter", "transitions by what the store answered", ("answer",)),
    Metric("deferred_completions_total", "counter", "steps begun before their claim was there", ("outcome",)),
    Metric("prologues_total", "counter", "step deliveries by what was read before the claim", ("prologue",)),
    Metric("input_drifts_total", "counter", "replayed calls whose arguments differ from the recorded ones"),
    Metric("passed_over_payloads_total", "counter", "hook payloads that did not fit and were passed over"),
    Metric("body_io_total", "counter", "calls a body must not make (sockets, threads, sleeping)", ("call",)),
    Metric("replays_total", "counter", "bodies built from their log"),
    # messages
    Metric("redeliveries_total", "counter", "deliveries handed out after an earlier one lapsed", ("kind",)),
    Metric("dead_letters_total", "counter", "messages set aside because nobody can use them", ("reason",)),
    Metric("parked_total", "counter", "runs parked", ("reason",)),
    Metric("liveness_heals_total", "counter", "runs the sweeper found without a way forward"),
    # runs and steps
    Metric("runs_total", "counter", "runs ended", ("workflow", "status")),
    Metric("steps_total", "counter", "step executions ended", ("step", "status")),
    Metric("step_seconds", "histogram", "duration of a step's code", ("step",)),
    Metric("time_to_first_step_seconds", "histogram", "from the start of a run to its first step's code"),
    Metric("step_gap_seconds", "histogram", "from an inline step's end to the start of the next one"),
    # this process
    Metric("in_flight", "gauge", "deliveries in flight, steps that run", ("kind",)),
    Metric("live_bodies", "gauge", "suspended bodies kept in memory"),
    Metric("round_trips_total", "counter", "script calls", ("script",)),
    Metric("loop_stall_seconds", "histogram", "times the event loop did not answer for a second or more"),
)
# fmt: on


class Telemetry:
    """The metrics of one worker, each an attribute: ``telemetry.rescues_fired.inc()``.

    They are moved by the thread of the worker's event loop alone, and read by any (see `counters`).
    """

    inline_owned_recoveries: Counter
    inline_backstop_wakes_armed: Counter
    queue_backstop_wakes_armed: Counter
    rescues_fired: Counter
    single_flight_absorbed: Counter
    superseded: Counters
    unsafe_settles: Counter
    dispatch_rows: Counters
    transitions: Counters
    deferred_completions: Counters
    prologues: Counters
    input_drifts: Counter
    passed_over_payloads: Counter
    body_io: Counters
    replays: Counter
    redeliveries: Counters
    dead_letters: Counters
    parked: Counters
    liveness_heals: Counter
    runs: Counters
    steps: Counters
    step_seconds: Histograms
    time_to_first_step_seconds: Histogram
    step_gap_seconds: Histogram
    in_flight: Gauge
    live_bodies: Gauge
    round_trips: Counters
    loop_stall_seconds: Histogram

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for metric in METRICS:
            setattr(self, metric.attribute, _made(metric, self.registry))

    def collect(self) -> Iterator[Family]:
        """Ours, then the application's. A collector of theirs that fails hides only theirs."""
        ours = {f"workflow_{metric.attribute}" for metric in METRICS}
        yield from self.registry.collect()
        yield from (family for family in _of_application() if family.name not in ours)


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Counters | Gauge | Histogram | Histograms:
    name = f"workflow_{metric.name}"
    if metric.kind == "gauge":
        return Gauge(name, metric.help, metric.labels, registry=registry)
    family = (Counters if metric.kind == "counter" else Histograms)(name, metric.help, metric.labels)
    registry.register(family)
    return family if metric.labels else family.labels()


def _of_application() -> Iterable[Family]:
    try:
        return list(REGISTRY.collect())
    except Exception:
        log.exception("a collector of the application's default registry failed")
        return []


def attributes() -> set[str]:
    """Names of the metrics a `Telemetry` declares."""
    return set(get_type_hints(Telemetry))
