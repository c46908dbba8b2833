"""Runs of a namespace, page by page, from the indexes of its partitions."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, NamedTuple

from world_redis.ids import partition_of
from world_redis.world import RedisWorld

from .history import RunInfo, info_of
from .run import pairs

Index = Literal["open", "done"]

STATUSES = ("pending", "running", "completed", "failed", "cancelled", "parked")

_KEY: dict[Index, int] = {"open": 2, "done": 3}  # place in PARTITION_KEYS
_SLACK = 200  # runs of one millisecond that a page may have to step over


class Place(NamedTuple):
    """Where a page ended."""

    part: Index
    score: int
    run_id: str

    def __str__(self) -> str:
        return f"{self.part}.{self.score}.{self.run_id}"

    @staticmethod
    def parse(text: str) -> Place:
        index, _, rest = text.partition(".")
        score, _, run_id = rest.partition(".")
        if index not in _KEY or not score.isdigit() or not run_id:
            raise ValueError(f"{text!r} is not a cursor of list_runs")
        return Place("open" if index == "open" else "done", int(score), run_id)


async def list_runs(
    world: RedisWorld,
    *,
    workflow: str | None,
    status: str | None,
    limit: int,
    cursor: str | None,
) -> tuple[list[RunInfo], str | None]:
    """At most `limit` runs that fit, and the cursor after them. Raises ValueError when asked wrongly."""
    if limit < 1:  # a page of none would be asked for without end
        raise ValueError(f"limit is {limit}; it is 1 or more")
    if status is not None and status not in STATUSES:
        raise ValueError(f"status is {status!r}; it is one of {', '.join(STATUSES)}")
    place = Place.parse(cursor) if cursor else None
    found: list[RunInfo] = []
    indexes: list[Index] = ["open", "done"] if place is None or place.part == "open" else ["done"]
    for index in indexes:
        after = place if place is not None and place.part == index else None
        while True:
            batch = await _batch(world, index, after, limit)
            for info, after in zip(await _infos(world, batch), batch, strict=True):
                if info is not None and _fits(info, workflow, status):
                    found.append(info)
                    if len(found) == limit:
                        return found, str(after)
            if len(batch) < limit:
                break
    return found, None


async def _batch(world: RedisWorld, index: Index, after: Place | None, limit: int) -> list[Place]:
    """The next `limit` runs of all partitions by falling score."""
    parts = await asyncio.gather(
        *(_of_partition(world, number, index, after, limit) for number in world.partitions)
    )
    merged = sorted((place for part in parts for place in part), key=_order, reverse=True)
    return merged[:limit]


async def _of_partition(
    world: RedisWorld, partition: int, index: Index, after: Place | None, limit: int
) -> list[Place]:
    key = world.keys.partition(partition)[_KEY[index]]
    high = "+inf" if after is None else str(after.score)
    count = limit + _SLACK
    reply = await world.command(
        "ZRANGE", key, high, "-inf", "BYSCORE", "REV", "LIMIT", 0, count, "WITHSCORES"
    )
    places = [Place(index, int(score), run_id.decode()) for run_id, score in _scored(reply)]
    return [place for place in places if after is None or _order(place) < _order(after)][:limit]


async def _infos(world: RedisWorld, places: list[Place]) -> list[RunInfo | None]:
    async def one(run_id: str) -> RunInfo | None:
        key = world.keys.run(partition_of(run_id), run_id)[0]
        reply: Any = await world.command("HGETALL", key)
        record = pairs(reply)
        return info_of(run_id, record) if record else None

    return await asyncio.gather(*(one(place.run_id) for place in places))


def _fits(info: RunInfo, workflow: str | None, status: str | None) -> bool:
    if workflow is not None and info.workflow != workflow:
        return False
    return status is None or info.status == status or (status == "parked" and info.parked != "")


def _order(place: Place) -> tuple[int, str]:
    return place.score, place.run_id


def _scored(reply: Any) -> list[tuple[bytes, float]]:
    """RESP3 answers pairs, RESP2 a flat list."""
    if reply and isinstance(reply[0], list | tuple):
        return [(member, float(score)) for member, score in reply]
    return [(member, float(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]
