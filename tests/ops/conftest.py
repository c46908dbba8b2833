"""A store driven by hand, for what is read from it."""

from collections.abc import AsyncIterator

import pytest

from tests.lua.kit import START_OF_TIME, StoreKit
from worker.fleet import FleetReader
from world_redis.world import RedisWorld


@pytest.fixture
async def kit(redis_url: str, namespace: str) -> AsyncIterator[StoreKit]:
    async with RedisWorld(redis_url, namespace=namespace) as world:
        kit = StoreKit(world, redis_url)
        await kit.clock.set(START_OF_TIME)
        yield kit


@pytest.fixture
async def reader(redis_url: str, namespace: str) -> AsyncIterator[FleetReader]:
    reader = FleetReader(redis_url, namespace=namespace)
    yield reader
    await reader.close()
