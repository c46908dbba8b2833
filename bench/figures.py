"""What a scenario finds: figures, some with a target, and tables of growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

FLOORS = "floors"
RESTED = "rested floors"  # the same call after the pause that the measured thing had too
LINK = "link floors"  # the same script over our own link


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `ratio` relates it to what it is judged by: floors, or a peer."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    of: str = FLOORS
    target: str = ""
    met: bool | None = None  # None: no target


@dataclass(frozen=True, slots=True)
class Growth:
    """How figures change when one thing grows. `plotted` names the columns of the picture."""

    name: str
    columns: Sequence[str]  # the first one is what grows
    rows: Sequence[Sequence[float]]
    plotted: Sequence[str]


@dataclass(slots=True)
class Result:
    figures: list[Figure] = field(default_factory=list)
    growth: Growth | None = None


def in_floors(
    name: str, seconds: float, floor: float, *, at_most: float | None = None, of: str = FLOORS
) -> Figure:
    """A duration, with its ratio to the floor (both in seconds), of the kind `of`, and what that may be."""
    ratio = seconds / floor
    target = "" if at_most is None else f"≤ {at_most:g} {of}"
    met = None if at_most is None else ratio <= at_most
    return Figure(name, seconds * 1e6, "µs", ratio, of, target, met)


def in_both_floors(name: str, seconds: float, floor: float, link: float, *, at_most: float) -> list[Figure]:
    """A duration that is judged by the floor. The link floor shows how much of it is our own Python."""
    return [
        in_floors(name, seconds, floor, at_most=at_most),
        in_floors(name, seconds, link, of=LINK),
    ]


def plain(
    name: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
) -> Figure:
    if at_most is not None:
        return Figure(name, value, unit, target=f"≤ {at_most:g} {unit}", met=value <= at_most)
    if at_least is not None:
        return Figure(name, value, unit, target=f"≥ {at_least:g} {unit}", met=value >= at_least)
    return Figure(name, value, unit)


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that `part` (0..1) of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(part * len(ordered)) - 1))]


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)
