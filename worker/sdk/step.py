"""What a step's code may ask about itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .context import current_step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetadata:
    """What `get_step_metadata` tells."""

    name: str
    run_id: str
    step_id: str  # ``step_`` and 26 digits, the same in every attempt
    attempt: int  # from 1; crashes of a worker are not counted
    max_attempts: int
    started_at: datetime  # of this attempt (UTC)
    first_started_at: datetime  # of the first execution (UTC)
    deadline: datetime | None  # of this attempt, when the step has a timeout
    idempotency_key: str  # give it to the system you call: the same in every attempt
    fencing_token: int  # grows with every execution of the step and never runs backwards


@dataclass(slots=True)
class RunningStep:
    """The value of `current_step` while a step's code runs."""

    describe: Callable[[], StepMetadata]  # called when somebody asks: most steps do not
    resources: Any = None
    cancelled: bool = False
    starts: int = 0  # runs started by this execution, which numbers their idempotency keys
    claimed: Future[None] | None = None  # of code that runs ahead of its claim, perhaps in a thread
    _metadata: StepMetadata | None = None

    @property
    def metadata(self) -> StepMetadata:
        if self._metadata is None:
            self._metadata = self.describe()
        return self._metadata

    def claim(self, *, granted: bool) -> None:
        """Let go on, or stop, what waits in `claim_of_running_step`."""
        assert self.claimed is not None
        if granted:
            self.claimed.set_result(None)
        else:
            self.claimed.cancel()


def running_step(what: str) -> RunningStep:
    """The step whose code is running. Raises RuntimeError, naming `what` was called, outside of one."""
    step = current_step.get()
    if not isinstance(step, RunningStep):
        raise RuntimeError(f"{what} works only in a step")
    return step


async def claim_of_running_step() -> None:
    """Wait until the running step, if there is one, may write to our store: a run started or a hook resumed
    by code whose claim is refused would be found, under the same key, by the step that takes its place.

    Raises:
        CancelledError: the claim was refused; nobody wants what this code does.
    """
    step = current_step.get()
    if isinstance(step, RunningStep) and step.claimed is not None:
        await asyncio.shield(asyncio.wrap_future(step.claimed))


def get_step_metadata() -> StepMetadata:
    """About the running step. Raises RuntimeError outside of one."""
    return running_step("get_step_metadata()").metadata


def is_cancelled() -> bool:
    """True once the run was asked to cancel or has ended: the step should come to an end."""
    return running_step("is_cancelled()").cancelled


def get_resources() -> Any:
    """What the registry's ``lifespan`` yielded in this process; None without one."""
    return running_step("get_resources()").resources
