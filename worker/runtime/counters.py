"""Counters and histograms of the event loop's own thread, read by Prometheus when it asks.

A run of three steps moves some twenty of them. Those of the client library, which any thread may move, take a
lock and look at their labels each time: a twentieth of a worker's time. These are plain numbers. Only the
thread of the event loop may move them; any thread may read.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

# Upper bounds in seconds, 1 ms to 1 h.
BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
)
_BOUNDS: list[str] = [
    floatToGoString(bound)  # type: ignore[no-untyped-call]
    for bound in (*BUCKETS, float("inf"))
]


class Counter:
    """How often something happened, since the worker began."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class Histogram:
    """How long something took, each time since the worker began."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * len(_BOUNDS)  # of each bucket, without those below it
        self.sum = 0.0  # seconds

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


Child = TypeVar("Child", Counter, Histogram)


class _Labelled(Collector, Generic[Child]):
    """One child for each combination of label values; without labels, one."""

    _child: type[Child]

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self._about = name, help
        self._names = labels
        self._children: dict[tuple[str, ...], Child] = {}
        # Values, all of them text → the child. Several are looked up for every step.
        self.labels: Callable[..., Child] = functools.cache(self._make)

    def _make(self, *values: str) -> Child:
        """Raises ValueError when there are not as many values as labels."""
        if len(values) != len(self._names):
            raise ValueError(f"{self._about[0]} has the labels {self._names}, got {values}")
        # The library writes what it gets: of a member of an enum, the text. The cache tells the two apart.
        return self._children.setdefault(tuple(map(str, values)), self._child())

    def _each(self) -> dict[tuple[str, ...], Child]:
        """As they are now: the loop may add to them while another thread reads."""
        return self._children.copy()


class Counters(_Labelled[Counter]):
    """``counters.labels("ok").inc()``"""

    _child = Counter

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*self._about, labels=self._names)
        for values, counter in self._each().items():
            family.add_metric(values, counter.value)
        yield family


class Histograms(_Labelled[Histogram]):
    """``histograms.labels("charge").observe(0.2)``"""

    _child = Histogram

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(*self._about, labels=self._names)
        for values, histogram in self._each().items():
            upto = accumulate(histogram.counts.copy())
            family.add_metric(values, list(zip(_BOUNDS, upto, strict=True)), histogram.sum)
        yield family
