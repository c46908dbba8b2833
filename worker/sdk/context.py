"""Whose code is running: a workflow body, a step, or neither.

A body is found through its event loop, which is current while its code runs and at no other time;
a step through a context variable, which its threads inherit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from ..core.calls import ChildCall, Payload
    from .definitions import Step, WorkflowDefinition


class BodyPort(Protocol):
    """What code in a body may ask of the body that runs it.

    Every method raises `BodyDropped` while the body is being dropped. The futures complete when
    the event that answers them is delivered.
    """

    @property
    def replaying(self) -> bool: ...
    @property
    def dropping(self) -> bool: ...
    @property
    def run_id(self) -> str: ...
    @property
    def workflow(self) -> WorkflowDefinition[Any, Any]: ...

    def check(self) -> None: ...
    def step(
        self, step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> asyncio.Future[Any]: ...
    def child(
        self,
        workflow: WorkflowDefinition[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        resolved: bool,
    ) -> tuple[ChildCall, asyncio.Future[Any]]: ...
    def wait(self, due_in: int, due_at: int) -> asyncio.Future[None]: ...
    def open_hook(self, cls: type[Any], token: str | None, metadata: Any) -> tuple[str, str]: ...
    def next_payload(self, hook_id: str) -> asyncio.Future[Payload]: ...
    def pass_over(self, hook_id: str, slot: int, reason: str) -> None: ...
    def hook_conflict(self, hook_id: str) -> asyncio.Future[str | None]: ...
    def dispose(self, hook_id: str) -> None: ...
    def set_attributes(self, changes: Mapping[str, str | None]) -> None: ...
    def patched(self, change_id: str) -> bool: ...
    def now_ms(self) -> int: ...
    def random(self) -> Random: ...
    def uuid4(self) -> UUID: ...
    def metadata(self) -> WorkflowMetadata: ...
    def read(self, data: bytes, annotation: Any, path: str) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowMetadata:
    """What `get_workflow_metadata` tells. The same in every replay."""

    name: str  # of the workflow
    version: int  # that this run was started with
    run_id: str
    root_run_id: str  # the first ancestor; the run itself when nobody started it as a child
    parent_run_id: str | None  # the run that started it as a child
    queue: str  # the run's own
    started_at: datetime  # when the run was created (UTC)


current_step: ContextVar[Any | None] = ContextVar("current_step", default=None)
"""The execution of the step whose code is running, or None. Set by whoever runs the step."""


def current_body() -> BodyPort | None:
    """The body whose code is running, or None."""
    body: BodyPort | None = getattr(asyncio._get_running_loop(), "body", None)
    return body


def body_for(what: str) -> BodyPort:
    """The body whose code is running.

    Raises:
        RuntimeError: no body's code is running; the text names `what` was called.
    """
    body = current_body()
    if body is not None:
        return body
    where = "in a step" if current_step.get() is not None else "here"
    raise RuntimeError(f"{what} works only in a workflow body, not {where}")
