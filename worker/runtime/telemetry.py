"""What a worker counts. `METRICS` is the whole list; every name begins with ``workflow_``.

Labels are bounded: names of workflows, steps, scripts, rows and answers, never ids. Each worker has a
registry of its own, so that a reload or a second worker in a process registers nothing twice; the
default registry, where an application puts its own metrics, is served beside it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar, get_type_hints

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric as Family

log = logging.getLogger("worker.telemetry")

M = TypeVar("M", bound=Counter | Gauge | Histogram)

# Seconds, 1 ms to 1 h.
BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
)


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
    Metric("single_flight_absorbed_total", "counter", "deliveries of a step already executing here"),
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
    """The metrics of one worker, each an attribute: ``telemetry.rescues_fired.inc()``."""

    inline_owned_recoveries: Counter
    inline_backstop_wakes_armed: Counter
    queue_backstop_wakes_armed: Counter
    rescues_fired: Counter
    single_flight_absorbed: Counter
    superseded: Counter
    unsafe_settles: Counter
    dispatch_rows: Counter
    transitions: Counter
    deferred_completions: Counter
    prologues: Counter
    input_drifts: Counter
    passed_over_payloads: Counter
    body_io: Counter
    replays: Counter
    redeliveries: Counter
    dead_letters: Counter
    parked: Counter
    liveness_heals: Counter
    runs: Counter
    steps: Counter
    step_seconds: Histogram
    time_to_first_step_seconds: Histogram
    step_gap_seconds: Histogram
    in_flight: Gauge
    live_bodies: Gauge
    round_trips: Counter
    loop_stall_seconds: Histogram

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for metric in METRICS:
            setattr(self, metric.attribute, _remembering(_made(metric, self.registry)))

    def collect(self) -> Iterator[Family]:
        """Ours, then the application's. A collector of theirs that fails hides only theirs."""
        ours = {f"workflow_{metric.attribute}" for metric in METRICS}
        yield from self.registry.collect()
        yield from (family for family in _of_application() if family.name not in ours)


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name = f"workflow_{metric.name}"
    match metric.kind:
        case "counter":
            return Counter(name, metric.help, metric.labels, registry=registry)
        case "gauge":
            return Gauge(name, metric.help, metric.labels, registry=registry)
        case "histogram":
            return Histogram(name, metric.help, metric.labels, registry=registry, buckets=BUCKETS)


def _remembering(made: M) -> M:
    """Several labels are looked up for every step: a cache in front of the library's checks and lock."""
    made.labels = functools.cache(made.labels)  # type: ignore[assignment,method-assign]
    return made


def _of_application() -> Iterable[Family]:
    try:
        return list(REGISTRY.collect())
    except Exception:
        log.exception("a collector of the application's default registry failed")
        return []


def attributes() -> set[str]:
    """Names of the metrics a `Telemetry` declares."""
    return {name for name, kind in get_type_hints(Telemetry).items() if kind in (Counter, Gauge, Histogram)}
