"""`start`, `get_run` and the like without a client of one's own.

They use the registry's client, or a default one for each (event loop, namespace), made from ``WORKFLOW_*``
variables. A process that forks starts with none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from ..settings import Settings
from .calls import start_child
from .client import Client, HookInfo, Page, check_workflow
from .context import current_body
from .definitions import WorkflowDefinition
from .hooks import BaseHook, install_resume
from .run import Run

P = ParamSpec("P")
T = TypeVar("T")

_defaults: dict[tuple[asyncio.AbstractEventLoop, str], Client] = {}


def _forget() -> None:
    """A forked child shares sockets with its parent: it must not touch them."""
    _defaults.clear()


os.register_at_fork(after_in_child=_forget)


def default_client(namespace: str | None = None) -> Client:
    """The default client of the running event loop.

    Raises:
        SettingsError: ``WORKFLOW_REDIS_URL`` is not set.
        RuntimeError: no event loop runs, or it is a body's.
    """
    if current_body() is not None:
        raise RuntimeError("a workflow body cannot reach the store; do it in a step")
    loop = asyncio.get_running_loop()
    for key in [key for key in _defaults if key[0].is_closed()]:
        del _defaults[key]
    key = (loop, namespace or "")
    if key not in _defaults:
        _defaults[key] = Client.from_settings(Settings.load(), namespace=namespace)
    return _defaults[key]


def use_client(client: Client, namespace: str | None = None) -> None:
    """Make `client` the default one of the running event loop (for its `namespace`)."""
    _defaults[(asyncio.get_running_loop(), namespace or "")] = client


async def close_default_clients() -> None:
    """Close the default clients of the running event loop."""
    loop = asyncio.get_running_loop()
    for key in [key for key in _defaults if key[0] is loop]:
        await _defaults.pop(key).close()


def _client_of(workflow: WorkflowDefinition[Any, Any]) -> Client:
    own: Client | None = workflow.registry.client
    return own if own is not None else default_client(workflow.registry.namespace)


async def start(workflow: WorkflowDefinition[P, T], *args: P.args, **kwargs: P.kwargs) -> Run[T]:
    """Start a run; see `Client.start`. In a workflow body it starts a child, recorded once however often
    the body replays, and answers a `ChildRun`."""
    check_workflow(workflow, "start")
    if current_body() is not None:
        child: Any = start_child(workflow, *args, **kwargs)
        handle: Run[T] = child
        return handle
    return await _client_of(workflow).start(workflow, *args, **kwargs)


async def start_many(
    workflow: WorkflowDefinition[Any, T], arguments: Iterable[Sequence[Any] | Mapping[str, Any]]
) -> list[Run[T]]:
    """Start many runs; see `Client.start_many`."""
    check_workflow(workflow, "start_many")
    return await _client_of(workflow).start_many(workflow, arguments)


def get_run(run_id: str, workflow: WorkflowDefinition[Any, T] | None = None) -> Run[T]:
    """The handle of a run; see `Client.get_run`."""
    client = default_client() if workflow is None else _client_of(workflow)
    return client.get_run(run_id, workflow)


async def list_runs(
    *,
    workflow: str | None = None,
    status: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page:
    """Runs of the namespace; see `Client.list_runs`."""
    return await default_client().list_runs(workflow=workflow, status=status, limit=limit, cursor=cursor)


async def get_hook_by_token(token: str) -> HookInfo:
    """The hook a token leads to; see `Client.get_hook`."""
    return await default_client().get_hook(token)


async def _resume(payload: BaseHook, token_or_hook: Any, idempotency_key: str | None) -> HookInfo:
    return await default_client().resume(token_or_hook, payload, idempotency_key=idempotency_key)


install_resume(_resume)
