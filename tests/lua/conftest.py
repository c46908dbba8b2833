"""One kit a test; afterwards nothing may be out of place."""

from collections.abc import AsyncIterator

import pytest

from tests.lua.kit import START_OF_TIME, StoreKit
from world_redis.world import RedisWorld


@pytest.fixture
async def kit(redis_url: str, namespace: str) -> AsyncIterator[StoreKit]:
    async with RedisWorld(redis_url, namespace=namespace) as world:
        kit = StoreKit(world, redis_url)
        await kit.clock.set(START_OF_TIME)
        yield kit
        assert await kit.breaches() == []
        for other in kit.others:
            await other.close()
