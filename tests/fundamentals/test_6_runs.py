"""Runs from outside: starting once, looking, cancelling; children; changing code."""

import asyncio

import pytest

from tests.fundamentals.conftest import Running
from worker import (
    RunCancelledError,
    TypeValidationError,
    WorkflowRunFailedError,
    Workflows,
    continue_as_new,
    set_attributes,
    sleep,
    start,
)


async def test_a_start_with_a_key_happens_once(running: Running) -> None:
    """Repeat it after a lost answer: the same run comes back."""
    wf = Workflows()

    @wf.workflow
    async def invoice(month: str) -> str:
        return month

    async with running(wf) as client:
        once = invoice.with_options(idempotency_key="invoice-2024-05")
        first = await client.start(once, "May")
        again = await client.start(once, "May")
        assert first.run_id == again.run_id


async def test_arguments_are_checked_before_anything_starts(running: Running) -> None:
    """By the annotations, at the caller."""
    wf = Workflows()

    @wf.workflow
    async def order(amount: int) -> int:
        return amount

    async with running(wf) as client:
        with pytest.raises(TypeValidationError):
            await client.start(order, "many")  # type: ignore[arg-type]


async def test_a_run_can_be_looked_at(running: Running) -> None:
    """Its status, its steps, its events, and attributes it sets for people."""
    wf = Workflows()

    @wf.step
    async def pack(what: str) -> str:
        return what

    @wf.workflow
    async def ship(what: str) -> str:
        await set_attributes({"what": what})
        return await pack(what)

    async with running(wf) as client:
        run = await client.start(ship, "a book")
        await run.return_value(timeout=10)
        assert await run.status() == "completed"
        assert [step.state for step in await run.steps()] == ["completed"]
        assert [event.type for event in await run.events()][-1] == "run_completed"
        assert await run.attributes() == {"what": "a book"}


async def test_cancel_asks_and_finally_may_still_run_steps(running: Running) -> None:
    """The body meets `CancelledError` where it waits; `terminate` would not ask."""
    wf = Workflows()
    said: asyncio.Queue[str] = asyncio.Queue()

    @wf.step
    async def say(what: str) -> None:
        said.put_nowait(what)

    @wf.workflow
    async def rent() -> None:
        try:
            await say("rented")
            await sleep("30 days")
        finally:
            await say("returned")

    async with running(wf) as client:
        run = await client.start(rent)
        assert await said.get() == "rented"
        await run.cancel(reason="moved out")
        with pytest.raises(RunCancelledError, match="moved out"):
            await run.return_value(timeout=10)
    assert said.get_nowait() == "returned"


async def test_a_workflow_may_run_another_as_its_child(running: Running) -> None:
    """Awaiting it looks like a step call; its failure is an error of the call."""
    wf = Workflows()

    @wf.workflow
    async def part(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return n

    @wf.workflow
    async def whole() -> str:
        total = sum(await asyncio.gather(part(1), part(2)))
        try:
            await part(-1)
        except WorkflowRunFailedError as error:
            return f"{total}, then {error.__cause__}"
        return "no failure"

    async with running(wf) as client:
        assert await (await client.start(whole)).return_value(timeout=10) == "3, then negative"


async def test_start_in_a_body_does_not_wait(running: Running) -> None:
    """One child however often the body replays; its handle can be awaited later."""
    wf = Workflows()

    @wf.workflow
    async def part() -> str:
        return "part"

    @wf.workflow
    async def whole() -> str:
        child = await start(part)
        return f"{await child.return_value()} of {child.run_id[:5]}"

    async with running(wf) as client:
        assert await (await client.start(whole)).return_value(timeout=10) == "part of wrun_"


async def test_a_long_life_goes_on_as_a_new_run(running: Running) -> None:
    """A log should not grow for ever; whoever waits gets the last run's result. Attributes go along."""
    wf = Workflows()

    @wf.workflow
    async def count(left: int) -> str:
        await set_attributes({"left": str(left)})
        if left:
            continue_as_new(left - 1)
        return "done"

    async with running(wf) as client:
        run = await client.start(count.with_options(attributes={"team": "a"}), 2)
        assert await run.return_value(timeout=10) == "done"
        given = []
        while True:
            info = await run.info()
            given.append(info.attributes)
            if info.continued_to is None:
                break
            run = client.get_run(info.continued_to)
        assert given == [{"team": "a"}, {"team": "a", "left": "2"}, {"team": "a", "left": "1"}]
        assert await run.attributes() == {"team": "a", "left": "0"}


async def test_versions_of_a_workflow_live_side_by_side(running: Running) -> None:
    """A run keeps the version it was started with; new runs take the highest."""
    wf = Workflows()

    @wf.workflow(name="greet", version=1)
    async def greet_1() -> str:
        return "hello"

    @wf.workflow(name="greet", version=2)
    async def greet_2() -> str:
        return "good morning"

    async with running(wf) as client:
        assert await (await client.start(greet_1)).return_value(timeout=10) == "good morning"
        old = await client.start(greet_1.with_options(version=1))
        assert await old.return_value(timeout=10) == "hello"
