"""Durable workflows on Redis: the public names.

    from worker import Workflows, sleep, start

Everything a name needs is in its docstring; the tour is in the README.
"""

# --- defining ---------------------------------------------------------------------------------------
from .core.retry import RetryPolicy
from .sdk.definitions import Step, WorkflowDefinition
from .sdk.registry import Workflows

# --- in a workflow's body ---------------------------------------------------------------------------
from .sdk.calls import (
    as_completed,
    continue_as_new,
    get_workflow_metadata,
    is_replaying,
    logger,
    now,
    patched,
    random,
    remove_attributes,
    set_attributes,
    sleep,
    sleep_until,
    time_ns,
    uuid4,
)
from .sdk.context import WorkflowMetadata
from .sdk.hooks import BaseHook, HookEvent

# --- in a step --------------------------------------------------------------------------------------
from .sdk.step import StepMetadata, get_resources, get_step_metadata, is_cancelled

# --- outside ----------------------------------------------------------------------------------------
from .sdk.client import Client, HookInfo, Page
from .sdk.default import get_hook_by_token, get_run, list_runs, start, start_many
from .sdk.history import RunEvent, RunInfo, StepInfo
from .sdk.run import Run

# --- values -----------------------------------------------------------------------------------------
from .sdk.values import register_serializable, serializable

# --- errors -----------------------------------------------------------------------------------------
from .sdk.errors import (
    BodyDropped,
    DurationError,
    FatalError,
    HookConflictError,
    HookDisposedError,
    HookNotFoundError,
    RemoteError,
    ReplayDivergenceError,
    RetryableError,
    RunCancelledError,
    RunExistsError,
    RunExpiredError,
    RunNotFoundError,
    RunTimeoutError,
    SerializationError,
    StepCrashedError,
    StepNotRegisteredError,
    StepTimeoutError,
    TypeValidationError,
    WorkflowError,
    WorkflowRunFailedError,
)

__all__ = [
    "RetryPolicy",
    "Step",
    "WorkflowDefinition",
    "Workflows",
    "as_completed",
    "continue_as_new",
    "get_workflow_metadata",
    "is_replaying",
    "logger",
    "now",
    "patched",
    "random",
    "remove_attributes",
    "set_attributes",
    "sleep",
    "sleep_until",
    "time_ns",
    "uuid4",
    "WorkflowMetadata",
    "BaseHook",
    "HookEvent",
    "StepMetadata",
    "get_resources",
    "get_step_metadata",
    "is_cancelled",
    "Client",
    "HookInfo",
    "Page",
    "get_hook_by_token",
    "get_run",
    "list_runs",
    "start",
    "start_many",
    "RunEvent",
    "RunInfo",
    "StepInfo",
    "Run",
    "register_serializable",
    "serializable",
    "BodyDropped",
    "DurationError",
    "FatalError",
    "HookConflictError",
    "HookDisposedError",
    "HookNotFoundError",
    "RemoteError",
    "ReplayDivergenceError",
    "RetryableError",
    "RunCancelledError",
    "RunExistsError",
    "RunExpiredError",
    "RunNotFoundError",
    "RunTimeoutError",
    "SerializationError",
    "StepCrashedError",
    "StepNotRegisteredError",
    "StepTimeoutError",
    "TypeValidationError",
    "WorkflowError",
    "WorkflowRunFailedError",
]
