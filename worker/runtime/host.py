"""What every session and delivery of a process shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from world_redis.hooks import HookAddress
from world_redis.log import Log
from world_redis.messages import Held
from world_redis.queue import Queue

from ..sdk.definitions import Step, WorkflowDefinition
from ..sdk.registry import Workflows
from .ports import Ports
from .stepcall import StepRun, StepRunner

if TYPE_CHECKING:
    from .telemetry import Telemetry


class TokenRegistry(Protocol):
    """The registry of user-chosen hook tokens (world_redis.hooks.Tokens)."""

    async def claim(self, token: str, address: HookAddress) -> HookAddress: ...
    async def take_over(self, token: str, loser: HookAddress, winner: HookAddress) -> bool: ...
    async def release(self, token: str, address: HookAddress) -> None: ...


class ClaimRegistry(Protocol):
    """The registry of idempotency keys (world_redis.claims.StartClaims)."""

    async def end(self, key: str, retention_ms: int) -> None: ...


class Holdings(Protocol):
    """What the keeper thread renews."""

    def add(self, partition: int, held: Held) -> None: ...
    def drop(self, partition: int, held: Held) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings the engine itself obeys. Times in ms."""

    lease: int = 30_000
    retention: int = 7 * 86_400_000
    max_inline_steps: int = 3
    live_runs: int = 1000
    max_step_crashes: int = 5
    max_deliveries: int = 48
    park_after: int = 600_000
    inline_ownership: bool = True
    queue_backstop: bool = True
    async_step_completed: bool = False
    strict: bool = False


@dataclass(slots=True)
class Slots:
    """How many steps this process may run at once."""

    size: int
    taken: int = 0

    @property
    def free(self) -> int:
        return max(0, self.size - self.taken)


@dataclass(slots=True)
class Host:
    ports: Ports
    log: Log
    queue: Queue
    tokens: TokenRegistry
    claims: ClaimRegistry
    registry: Workflows
    queues: Sequence[str]  # served here, in order
    steps: StepRunner
    slots: Slots
    holdings: Holdings
    telemetry: Telemetry
    limits: Limits
    build: str
    draining: bool = False
    # Single flight: what of a (run, step) executes in this process.
    flights: dict[tuple[str, str], StepRun] = field(default_factory=dict)
    # Those of them that run without a claim: nobody wants their end, and nothing starts beside them.
    detached: set[tuple[str, str]] = field(default_factory=set)
    on_slot: Callable[[], None] = lambda: None  # told when a slot is freed

    def workflow(self, name: str, version: int) -> WorkflowDefinition[Any, Any] | None:
        return self.registry.find_workflow(name, version)

    def step(self, name: str) -> Step[Any, Any] | None:
        return self.registry.find_step(name)

    def may_run(self, name: str, queue: str) -> bool:
        """May this step's code start here now?"""
        step = self.step(name)
        return (
            step is not None
            and not self.draining
            and queue in self.queues
            and self.slots.free > 0
            and self.steps.can_run(step)
        )

    def begin(self, run: StepRun) -> None:
        self.slots.taken += 1
        self.flights[run.order.run_id, run.order.id] = run

    def finish(self, run: StepRun) -> None:
        """Its code no longer runs here: the slot is free."""
        self.slots.taken -= 1
        key = (run.order.run_id, run.order.id)
        if self.flights.get(key) is run:
            del self.flights[key]
            self.detached.discard(key)
        self.on_slot()
