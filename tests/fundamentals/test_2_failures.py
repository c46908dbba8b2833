"""Errors are retried, then reach the body, then end the run."""

import pytest

from tests.fundamentals.conftest import Running
from worker import (
    FatalError,
    RetryableError,
    RetryPolicy,
    WorkflowRunFailedError,
    Workflows,
    get_step_metadata,
)


async def test_a_step_that_raises_runs_again(running: Running) -> None:
    """By default three more times, one second apart; a policy says it otherwise."""
    wf = Workflows()

    @wf.step(retry=RetryPolicy(max_attempts=3, initial=0.01))
    async def fetch() -> int:
        attempt = get_step_metadata().attempt
        if attempt < 3:
            raise ConnectionError("the other side is away")
        return attempt

    @wf.workflow
    async def load() -> int:
        return await fetch()

    async with running(wf) as client:
        assert await (await client.start(load)).return_value(timeout=10) == 3


async def test_a_step_out_of_attempts_raises_fatal_error_with_the_last_error_as_its_cause(
    running: Running,
) -> None:
    """The body may catch it and take another way."""
    wf = Workflows()

    @wf.step(max_retries=0)
    async def fetch() -> None:
        raise ConnectionError("away")

    @wf.workflow
    async def load() -> str:
        try:
            await fetch()
        except FatalError as error:
            return f"gave up: {error.__cause__}"
        return "loaded"

    async with running(wf) as client:
        assert await (await client.start(load)).return_value(timeout=10) == "gave up: away"


async def test_fatal_error_is_never_retried(running: Running) -> None:
    """Raise it where another attempt cannot help."""
    wf = Workflows()
    attempts: list[int] = []

    @wf.step
    async def charge() -> None:
        attempts.append(get_step_metadata().attempt)
        raise FatalError("the card is stolen")

    @wf.workflow
    async def checkout() -> str:
        try:
            await charge()
        except FatalError as error:
            return str(error)
        return "paid"

    async with running(wf) as client:
        assert await (await client.start(checkout)).return_value(timeout=10) == "the card is stolen"
    assert attempts == [1]


async def test_retryable_error_chooses_when_the_next_attempt_runs(running: Running) -> None:
    """For a server that says when to come back."""
    wf = Workflows()

    @wf.step
    async def call() -> int:
        attempt = get_step_metadata().attempt
        if attempt == 1:
            raise RetryableError("too many requests", retry_after="20ms")
        return attempt

    @wf.workflow
    async def ask() -> int:
        return await call()

    async with running(wf) as client:
        assert await (await client.start(ask)).return_value(timeout=10) == 2


async def test_what_a_workflow_raises_fails_its_run(running: Running) -> None:
    """The caller gets `WorkflowRunFailedError`; what was raised is its cause."""
    wf = Workflows()

    @wf.workflow
    async def impossible() -> None:
        raise ValueError("nothing to do")

    async with running(wf) as client:
        run = await client.start(impossible)
        with pytest.raises(WorkflowRunFailedError) as failure:
            await run.return_value(timeout=10)
        assert await run.status() == "failed"
    assert isinstance(failure.value.__cause__, ValueError)
