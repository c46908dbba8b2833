"""Workflows call steps; steps do the work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fundamentals.conftest import Running
from worker import Workflows, get_resources, get_step_metadata


async def test_a_workflow_calls_steps_and_returns_a_result(running: Running) -> None:
    """A workflow is an async function. What touches the world goes into steps; calling one looks like it."""
    wf = Workflows()

    @wf.step
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @wf.workflow
    async def welcome(name: str) -> str:
        return await greet(name)

    async with running(wf) as client:
        run = await client.start(welcome, "Ada")
        assert await run.return_value(timeout=10) == "Hello, Ada!"


async def test_a_step_may_be_an_ordinary_function(running: Running) -> None:
    """A `def` step runs in a thread: blocking libraries are welcome there."""
    wf = Workflows()

    @wf.step
    def double(n: int) -> int:
        return 2 * n

    @wf.workflow
    async def twice(n: int) -> int:
        return await double(await double(n))

    async with running(wf) as client:
        assert await (await client.start(twice, 3)).return_value(timeout=10) == 12


async def test_a_step_runs_once_however_often_the_body_is_replayed(running: Running) -> None:
    """A body may be run again from its log after a crash; steps that have ended are answered from the log."""
    wf = Workflows()
    bodies: list[str] = []
    steps: list[str] = []

    @wf.step
    async def note(what: str) -> None:
        steps.append(what)

    @wf.workflow
    async def order() -> None:
        bodies.append("body")
        await note("first")
        await note("second")

    async with running(wf) as client:
        await (await client.start(order)).return_value(timeout=10)
    assert steps == ["first", "second"]
    assert len(bodies) >= 1


async def test_a_step_is_called_only_from_a_workflow_and_its_plain_function_from_anywhere() -> None:
    """`fn` is the function you wrote, for unit tests and for calls from other code."""
    wf = Workflows()

    @wf.step
    async def add(a: int, b: int) -> int:
        return a + b

    assert await add.fn(1, 2) == 3


async def test_a_step_knows_which_attempt_it_is_and_has_a_key_for_the_systems_it_calls(
    running: Running,
) -> None:
    """The idempotency key is the same in every attempt: give it to whoever must not act twice."""
    wf = Workflows()

    @wf.step
    async def pay() -> tuple[int, str]:
        about = get_step_metadata()
        return about.attempt, about.idempotency_key

    @wf.workflow
    async def checkout() -> list[tuple[int, str]]:
        return [await pay(), await pay()]

    async with running(wf) as client:
        (first, key), (_, other) = await (await client.start(checkout)).return_value(timeout=10)
    assert first == 1
    assert key != other


async def test_a_worker_opens_what_its_steps_share_once(running: Running) -> None:
    """`lifespan` is entered once per worker process; steps reach what it yields with `get_resources`."""

    @asynccontextmanager
    async def lifespan(registry: Workflows) -> AsyncIterator[dict[str, str]]:
        yield {"database": "connected"}

    wf = Workflows(lifespan=lifespan)

    @wf.step
    async def query() -> str:
        return str(get_resources()["database"])

    @wf.workflow
    async def report() -> str:
        return await query()

    async with running(wf) as client:
        assert await (await client.start(report)).return_value(timeout=10) == "connected"
