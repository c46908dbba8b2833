"""A stage for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.engine import app
from tests.engine.kit import Stage


@pytest.fixture
async def stage(redis_url: str) -> AsyncIterator[Stage]:
    async with Stage(redis_url, app.wf) as ready:
        yield ready
