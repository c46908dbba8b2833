"""Reading the fleet: each message counted once, nothing written, nothing opened."""

import json

import pytest

from tests.lua.kit import LEASE, START_OF_TIME, StoreKit, keys_of
from worker.fleet import Fleet, FleetReader, QueueFigures, Rate, rates
from world_redis.errors import LayoutMismatch, StoreUnavailable
from world_redis.ids import new_run_id
from world_redis.world import RedisWorld


async def announce(world: RedisWorld, id: str, *, ago: float = 0, **about: object) -> None:
    """A worker's line in the namespace record, as it would write it."""
    seconds, _ = await world.command("TIME")
    line = {
        "id": id,
        "build": "b1",
        "queues": ["default"],
        "concurrency": 10,
        "steps": 1,
        "sessions": 2,
        "draining": False,
        "lease": 30.0,
        "seen": (int(seconds) - ago) * 1000,
    } | about
    await world.command("HSET", world.keys.namespace_record(), f"worker:{id}", json.dumps(line))


async def test_every_message_is_counted_in_one_place(kit: StoreKit, reader: FleetReader) -> None:
    await kit.start()
    await kit.take_one()
    await kit.start()
    await kit.start(due_in=5000)
    (queue,) = (await reader.read()).queues
    assert (queue.ready, queue.due, queue.delayed, queue.in_flight, queue.lapsed) == (1, 0, 1, 1, 0)
    await kit.clock.advance(6000)
    (queue,) = (await reader.read()).queues
    assert (queue.ready, queue.due, queue.delayed, queue.in_flight, queue.lapsed) == (1, 1, 0, 1, 0)
    assert queue.oldest_seconds >= 1
    await kit.clock.advance(LEASE)
    (queue,) = (await reader.read()).queues
    assert (queue.ready, queue.due, queue.delayed, queue.in_flight, queue.lapsed) == (1, 1, 0, 0, 1)
    assert queue.backlog == 3
    assert queue.oldest_seconds == pytest.approx((LEASE + 1000) / 1000)


async def test_a_reading_writes_nothing(kit: StoreKit, reader: FleetReader) -> None:
    await kit.session()
    await kit.start(due_in=50)
    await kit.clock.advance(LEASE + 100)
    before = await kit.dump()
    await reader.read(deliveries=10)
    assert await kit.dump() == before


async def test_a_namespace_nobody_has_opened_is_empty_and_stays_so(
    redis_url: str, namespace: str, reader: FleetReader
) -> None:
    fleet = await reader.read()
    assert (fleet.queues, fleet.workers, fleet.open_runs) == ([], [], 0)
    world = RedisWorld(redis_url, namespace=namespace)
    assert await keys_of(world) == []
    await world.close()


async def test_deliveries_come_with_holder_and_lease_left_the_nearest_deadline_first(
    kit: StoreKit, reader: FleetReader
) -> None:
    first = await kit.session("w1")
    await kit.clock.advance(10_000)
    second = await kit.session("w2")
    assert second.delivery is not None
    await kit.clock.advance(5000)
    fleet = await reader.read(deliveries=10)
    seen = [(d.run_id, d.worker, d.number, d.key, d.lease_left) for d in fleet.deliveries]
    assert seen == [(first.run_id, "w1", 1, "wake", 15), (second.run_id, "w2", 1, "wake", 25)]
    assert len((await reader.read(deliveries=1)).deliveries) == 1
    assert (await reader.read()).deliveries == []


async def test_a_run_with_a_running_step_has_its_rescue_among_the_delayed(
    kit: StoreKit, reader: FleetReader
) -> None:
    session = await kit.session()
    await session.inline("s1", "s2")
    (queue,) = (await reader.read()).queues
    assert (queue.delayed, queue.in_flight) == (1, 1)


async def test_open_parked_and_dead_are_counted(kit: StoreKit, reader: FleetReader) -> None:
    await kit.start()
    delivery = await kit.take_one()
    await kit.queue().bury(delivery, reason="undecodable", detail="x")
    await kit.start()
    fleet = await reader.read()
    assert (fleet.open_runs, fleet.parked_runs, fleet.dead_letters) == (2, 1, 1)


async def test_a_worker_that_has_not_renewed_its_line_for_three_leases_is_not_alive(
    kit: StoreKit, reader: FleetReader
) -> None:
    await kit.start(queue="mail")
    await announce(kit.world, "alive", queues=["mail"])
    await announce(kit.world, "late", queues=["mail"], ago=80)
    await announce(kit.world, "gone", queues=["mail"], ago=100)
    await announce(kit.world, "leaving", queues=["mail"], draining=True)
    fleet = await reader.read()
    assert [worker.id for worker in fleet.workers] == ["alive", "late", "leaving"]
    served = {queue.queue: queue.workers for queue in fleet.queues}
    assert served == {"default": 0, "mail": 2}, "who drains takes nothing"


async def test_a_queue_that_appears_later_is_read_too(kit: StoreKit, reader: FleetReader) -> None:
    assert [queue.queue for queue in (await reader.read()).queues] == ["default"]
    await kit.start(queue="mail")
    assert [queue.queue for queue in (await reader.read()).queues] == ["default", "mail"]


async def test_partitions_are_summed(redis_url: str, namespace: str) -> None:
    async with RedisWorld(redis_url, namespace=namespace, partitions=2) as world:
        kit = StoreKit(world, redis_url)
        await kit.start(run_id=new_run_id(0))
        await kit.start(run_id=new_run_id(1))
        reader = FleetReader(redis_url, namespace=namespace, partitions=2)
        fleet = await reader.read()
        await reader.close()
    (queue,) = fleet.queues
    assert (queue.ready, fleet.open_runs) == (2, 2)


async def test_another_layout_is_refused(redis_url: str, namespace: str, reader: FleetReader) -> None:
    world = RedisWorld(redis_url, namespace=namespace)
    await world.command("HSET", world.keys.namespace_record(), "layout", "0")
    await world.close()
    with pytest.raises(LayoutMismatch):
        await reader.read()


async def test_a_server_that_is_not_there_is_an_error_of_the_store() -> None:
    reader = FleetReader("unix:///nowhere/there.sock")
    with pytest.raises(StoreUnavailable):
        await reader.read()


# --- rates ----------------------------------------------------------------------------------------


def fleet(at: int, *queues: QueueFigures) -> Fleet:
    return Fleet(START_OF_TIME + at, list(queues), [], [], 0, 0, 0, 0)


def test_rates_are_what_arrived_and_what_left_a_second() -> None:
    before = fleet(0, QueueFigures("a", ready=10, arrived=100))
    after = fleet(2000, QueueFigures("a", ready=4, arrived=120), QueueFigures("new", ready=1, arrived=1))
    assert rates(before, after) == [Rate("a", 10, 13)]


def test_a_queue_that_lost_its_history_has_no_rate() -> None:
    before = fleet(0, QueueFigures("a", ready=10, arrived=100))
    assert rates(before, fleet(1000, QueueFigures("a", ready=1, arrived=1))) == []


async def test_rates_follow_the_store(kit: StoreKit, reader: FleetReader) -> None:
    for _ in range(3):
        await kit.start()
    before = await reader.read()
    await kit.take()
    await kit.start()
    after = await reader.read()
    (queue,) = after.queues
    assert (queue.arrived, queue.ready) == (4, 1)
    (rate,) = rates(before, after) or [Rate("", 0, 0)]
    if after.at > before.at:
        assert rate.leaving == pytest.approx(3 * rate.arriving)
