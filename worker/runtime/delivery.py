"""One delivery, from hand-out to settle, as named stages.

    read the envelope → know its code → wait for the same step here → claim → execute → record and settle

Run messages go to their run's session; this file is about queued steps and the odd kinds. Every stage that
ends the delivery says why, in one place, and the store has settled or moved the message in the same script.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from world_redis.events import Answer, EventType
from world_redis.ids import new_mark
from world_redis.log import NOTHING_NEW
from world_redis.messages import Delivery, Kind, StepMessage, unpack_step_message
from world_redis.queue import Claim
from world_redis.runs import Runs
from world_redis.transition import Fact, Send, Transition

from ..core.ends import StepEnd, cancelled
from ..core.records import CancelRequested, Failed, pack
from ..sdk.errors import WorkflowError
from ..sdk.values import encode_failure
from .host import Host
from .queued import QueuedEnd, QueuedSteps
from .refusal import refusal_of_step
from .stepcall import StepOrder, StepRun
from .telling import tell_end

log = logging.getLogger("worker.delivery")

UNREADABLE = "UNREADABLE_MESSAGE"
_BACK_IN = 2_000  # ms until a step nobody here knows is offered again


async def bury(host: Host, delivery: Delivery, reason: str, detail: str) -> None:
    """Nobody can use this message: dead letter, and what it belongs to is parked or failed."""
    failure = encode_failure(WorkflowError(f"its message could not be used: {detail}"))
    word = await host.queue.bury(
        delivery, reason=reason, detail=detail, step_failed=pack(Failed(UNREADABLE, failure))
    )
    if word == "ok":
        host.telemetry.dead_letters.labels(reason).inc()
    log.error("dead letter", extra=about(delivery, reason=reason, detail=detail, answer=word))


async def pass_on_cancel(host: Host, delivery: Delivery) -> None:
    """A parent's cancel or end reaches its child."""
    await Runs(host.ports.call).cancel(delivery.run_id, pack(CancelRequested("its parent ended")))
    held = delivery.held
    settle = Transition(delivery.run_id, new_mark(), held, 1, seen=NOTHING_NEW, settles=[held])
    await host.log.append(settle, queue=delivery.queue)


class StepDelivery:
    """A queued step's delivery in this process. `serve` answers nothing: all is in the store."""

    def __init__(self, delivery: Delivery, host: Host, queued: QueuedSteps) -> None:
        self._delivery = delivery
        self._host = host
        self._queued = queued
        self._run: StepRun | None = None
        self._early: list[str] = []  # words that came before there was a run
        self._message: StepMessage | None = None
        self._run_queue = delivery.queue  # where the run's wakes go

    @property
    def has_slot(self) -> bool:
        return self._run is not None

    # --- from the worker and the keeper -----------------------------------------------------------

    def signal(self, word: str) -> None:
        run = self._run
        if run is None:  # told once: to be heeded if the claim that is on its way is granted
            self._early.append(word)
        elif word == "cancel":
            run.signal()
        elif word == "over":
            run.finish()
        elif word == "stop":  # the body has cancelled this call
            run.cancel()
        else:  # another delivery has taken over
            run.interrupt()

    def interrupt(self) -> None:
        if self._run is not None:
            self._run.interrupt()

    # --- the pipeline -----------------------------------------------------------------------------

    async def serve(self) -> None:
        try:
            await self._stages()
        except Exception:
            log.exception("delivery failed", extra=about(self._delivery))
            await self._host.queue.defer(self._delivery.partition, [self._delivery.held], due_in=_BACK_IN)

    async def _stages(self) -> None:
        message = await self._read()
        if message is None or not await self._known(message):
            return
        await self._wait_for_twin()
        if self._host.draining:
            await self._host.queue.defer(self._delivery.partition, [self._delivery.held])
            return
        asked = self._host.ports.now()
        claim = await self._queued.claim(self._delivery)
        if claim.answer is not Answer.OK:
            return self._refused(claim)
        if (self._host.ports.now() - asked) * 1000 >= self._host.limits.lease:
            return log.warning("claimed too late to begin", extra=about(self._delivery))
        end = await self._execute(message, claim)
        await self._record(claim, end)

    async def _read(self) -> StepMessage | None:
        try:
            message = unpack_step_message(self._delivery.payload)
        except ValueError as error:
            await bury(self._host, self._delivery, "undecodable", str(error))
            return None
        self._host.telemetry.prologues.labels("run_context" if message.context else "run_read").inc()
        self._message = message
        self._run_queue = message.context.queue if message.context else await self._read_queue()
        return message

    async def _read_queue(self) -> str:
        """An older producer sent no context: one read tells where the run's wakes belong."""
        run = await self._host.log.read(self._delivery.run_id, seen=NOTHING_NEW)
        return run.record["queue"].decode() if run is not None else self._delivery.queue

    async def _known(self, message: StepMessage) -> bool:
        refusal = refusal_of_step(message, self._host)
        if refusal is None:
            return True
        word = await self._host.queue.refuse(
            self._delivery.run_id,
            [self._delivery.held],
            reason=refusal.reason,
            detail=refusal.detail,
            build=self._host.build,
            park_after=self._host.limits.park_after,
            back_in=_BACK_IN,
        )
        log.warning(
            "step %s", word, extra=about(self._delivery, reason=refusal.reason, detail=refusal.detail)
        )
        if word == "parked":
            self._host.telemetry.parked.labels(refusal.reason).inc()
        return False

    async def _wait_for_twin(self) -> None:
        """Single flight: while the same step executes in this process, its claim would be refused or, with
        ownership off, would run it beside itself."""
        twin = self._twin()
        if twin is not None and self._host.limits.inline_ownership:
            self._host.telemetry.single_flight_absorbed.inc()
            log.warning("single flight", extra=about(self._delivery))
            await twin.over.wait()

    def _twin(self) -> StepRun | None:
        """Another execution of the same step in this process."""
        running = self._host.flights.get((self._delivery.run_id, self._delivery.key))
        return None if running is self._run else running

    def _refused(self, claim: Claim) -> None:
        """The script has settled the message or moved it; say what it saw."""
        if claim.answer is Answer.SUPERSEDED:
            self._host.telemetry.superseded.labels("delivery").inc()
        log.info(
            "step not started: %s",
            claim.answer.value,
            extra=about(self._delivery, run_status=claim.run_status, retry_in=claim.retry_in),
        )

    async def _execute(self, message: StepMessage, claim: Claim) -> StepEnd:
        order = self._order(message, claim)
        if claim.crashes > self._host.limits.max_step_crashes:
            return self._host.steps.give_up(order, claim.crashes)
        context = message.context
        if self._delivery.key == "s1" and claim.starts == 1 and context is not None:
            waited = max(0, claim.now - context.created_at) / 1000
            self._host.telemetry.time_to_first_step_seconds.observe(waited)
        run = self._run = self._host.steps.prepare(order)
        run.running.cancelled = claim.cancel_requested
        for word in self._early:
            self.signal(word)
        self._host.begin(run)
        return await self._host.steps.execute(run, self._host.finish)

    async def _record(self, claim: Claim, end: StepEnd) -> None:
        if end.cause == "drain" and self._run is not None and self._run.cancelled:
            end = cancelled()
        retry = self._retry() if end.type is EventType.STEP_RETRYING else None
        fact = Fact(end.type, self._delivery.key, end.data, 0, claim.epoch, retry, end.delay, end.cause)
        verdict = await self._queued.record(
            QueuedEnd(self._delivery.run_id, self._run_queue, self._delivery.held, fact)
        )
        name = self._message.name if self._message else self._delivery.key
        tell_end(self._host.telemetry, name, end, verdict, functools.partial(self._about_step, claim))

    # --- what the stages need ---------------------------------------------------------------------

    def _order(self, message: StepMessage, claim: Claim) -> StepOrder:
        step = self._host.step(message.name)
        assert step is not None
        return StepOrder(
            run_id=self._delivery.run_id,
            id=self._delivery.key,
            step=step,
            input=message.input,
            options=message.options,
            epoch=claim.epoch,
            errors=claim.errors,
            started_at=claim.now,
            first_started=claim.first_started,
            fence_at=claim.now,
        )

    def _about_step(self, claim: Claim) -> dict[str, Any]:
        """Log fields as of an inline step: what counts is the step's attempt, not the delivery's."""
        held = self._delivery.held
        return {
            "run_id": self._delivery.run_id,
            "message_id": held.message_id,
            "number": held.number,
            "step": self._delivery.key,
            "attempt": claim.errors + 1,
            "epoch": claim.epoch.slot,
        }

    def _retry(self) -> Send:
        """The next attempt is this same message over again, due when the policy says."""
        return Send(Kind.STEP, self._delivery.key, self._delivery.queue, self._delivery.payload)


def about(delivery: Delivery, **more: Any) -> dict[str, Any]:
    """Log fields that name a delivery."""
    return {
        "run_id": delivery.run_id,
        "key": delivery.key,
        "message_id": delivery.message_id,
        "number": delivery.number,
        "attempt": delivery.attempt,
    } | more
