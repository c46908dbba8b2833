"""How a session lets go of what it holds: refuse the run, give it back, or abandon it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from world_redis.ids import partition_of
from world_redis.messages import Held

from ..sdk.errors import InternalError
from .parts import Parts
from .refusal import Refusal

log = logging.getLogger("worker.session")

_BACK_IN = 2_000  # ms until a run that cannot be taken on here is offered again
_STOP_WITHIN = 5.0  # seconds that interrupted step code may take before we go on without it


class Leaving:
    def __init__(self, parts: Parts) -> None:
        self._run_id, self._host, self._hand, self._executions, self._known, _ = parts

    def guard(self, leaving: Sequence[Held]) -> None:
        """Nothing that owns a step in the middle of its code is settled, deferred, given back or parked: a
        redelivery would run it a second time beside itself. A run that is over is settled all the same."""
        carrier = self._hand.carrier
        if carrier not in leaving or self._known.over:
            return
        running = self._executions.under_way
        if not running:
            return
        steps = ", ".join(run.order.id for run in running)
        log.error("letting go of a message whose steps run", extra=self._hand.about(steps=steps))
        self._host.telemetry.unsafe_settles.inc()
        if self._host.limits.strict:
            raise InternalError(f"run {self._run_id}: {carrier} let go while {steps} run")

    async def refuse(self, refusal: Refusal) -> None:
        """This process cannot take the run on: others may, and in the end it parks."""
        held = self._hand.all
        self.guard(held)
        await self._refuse(refusal, held)

    async def give_back(self) -> None:
        """Another worker may go on at once."""
        held = self._hand.all
        self.guard(held)
        await self._give_back(held)

    async def abandon(self, refusal: Refusal | None = None) -> None:
        """Stop our steps, let go of what may still be ours, forget what we knew. What ends later is still
        recorded, if its epoch allows. Code in a thread cannot be stopped, so nothing is guarded here."""
        running = [*self._executions.running.values(), *self._executions.detached.values()]
        stopping = [run.over.wait() for run in running]
        self._executions.interrupt()
        if stopping:
            await self._host.ports.within(asyncio.gather(*stopping), _STOP_WITHIN)
        held = self._hand.all
        if refusal is not None and held:
            await self._refuse(refusal, held)
        else:
            await self._give_back(held)

    async def _refuse(self, refusal: Refusal, held: Sequence[Held]) -> None:
        word = await self._host.queue.refuse(
            self._run_id,
            held,
            reason=refusal.reason,
            detail=refusal.detail,
            build=self._host.build,
            park_after=0 if refusal.at_once else self._host.limits.park_after,
            back_in=_BACK_IN,
        )
        about = self._hand.about(reason=refusal.reason, detail=refusal.detail)
        log.warning("run %s", word, extra=about)
        if word == "parked":
            self._host.telemetry.parked.labels(refusal.reason).inc()
        self._hand.drop(held)
        self._known.drop_body()

    async def _give_back(self, held: Sequence[Held]) -> None:
        if held:
            await self._host.queue.defer(partition_of(self._run_id), held)
        self._hand.drop(held)
        self._known.drop_body()
