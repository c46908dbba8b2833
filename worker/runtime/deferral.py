"""Sending a transition, perhaps with the code of the step it starts under way already.

With ``WORKFLOW_ASYNC_STEP_COMPLETED=1``, and where `closed_by` leaves the gate open, the code of step *i+1*
begins when ``[step_completed(i), step_created(i+1), step_started(i+1)]`` is sent, not when it is answered.

Until the answer the execution is nobody's. Nothing that is written, settled, put off, given back or parked
can rest on it, because its end becomes an end of this session only in `confirm`, and a session has one
transition under way. Only ``ok`` with its epoch, in time, confirms; anything else detaches it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

from world_redis.events import Answer
from world_redis.transition import Epoch, Reply, Transition

from ..core.calls import StepCall
from ..core.defer import Gate, closed_by
from ..core.plan import Plan
from .commit import Commit
from .executions import Ending
from .parts import Parts

log = logging.getLogger("worker.session")

_AT_LEAST = 3  # slots from the last one read to its step_started: step_completed and step_created precede it


class Deferral:
    def __init__(self, parts: Parts, commit: Commit) -> None:
        self._run_id, self._host, self._hand, self._executions, self._known, _ = parts
        self._commit = commit
        self.cancelling = False  # the run was asked to cancel, or has ended

    async def send(self, transition: Transition, made: Plan, *, leaving: bool) -> Reply:
        """Send it. On return, and when this raises, no execution is ahead of its claim any more."""
        on = self._host.limits.async_step_completed
        if not on or closed_by(self._gate(transition, made, leaving)):
            prepare = functools.partial(self._executions.prepare, made.starts) if made.starts else None
            return await self._send(transition, prepare)
        (call,) = made.starts
        (ended,) = self._executions.ended.values()
        self._start(call, ended)
        reply = None
        try:
            reply = await self._send(transition)
        finally:
            self._resolve(transition, call, reply)
        return reply

    async def _send(self, transition: Transition, meanwhile: Callable[[], None] | None = None) -> Reply:
        reply = await self._commit.send(transition, meanwhile)
        self.cancelling |= reply.cancel_requested
        return reply

    def _gate(self, transition: Transition, made: Plan, leaving: bool) -> Gate:
        limits, body = self._host.limits, self._known.body
        return Gate(
            ownership=limits.inline_ownership,
            leaving=leaving or self._host.draining,
            cancelling=self.cancelling or (body is not None and body.cancel_requested),
            ahead=transition.advanced,
            held=self._hand.numbers,
            facts=transition.facts,
            made=made,
            settles=bool(transition.settles),
            asks=transition.table,
            open=body.open if body is not None else (),
            running=self._executions.ids | self._executions.detached.keys(),
        )

    def _start(self, call: StepCall, ended: Ending) -> None:
        """The token given to its code must not be higher than that of a later start, nor lower than that of
        the step before. So its time is one the server has told, not what our clock makes of it; its slot is
        the lowest that its step_started can have."""
        slot = self._known.seen + _AT_LEAST
        fence_at = max(self._known.heard, ended.run.order.fence_at)
        self._host.telemetry.step_gap_seconds.observe(self._host.ports.now() - ended.at)
        self._executions.start_early(call, Epoch(slot, b""), now=self._known.now(), fence_at=fence_at)

    def _resolve(self, transition: Transition, call: StepCall, reply: Reply | None) -> None:
        refusal = self._refusal(reply)
        self._host.telemetry.deferred_completions.labels("detached" if refusal else "confirmed").inc()
        if not refusal:
            assert reply is not None
            return self._executions.confirm(reply.starts[call.id].epoch)
        self._executions.detach()
        id, number = transition.delivery or ("", 0)
        about = {"run_id": self._run_id, "message_id": id, "number": number, "step": call.id}
        log.warning("detached", extra=about | {"reason": refusal})

    def _refusal(self, reply: Reply | None) -> str:
        """Why the claim is not there, "" when it is."""
        if reply is None:
            return "no answer"
        if reply.answer is not Answer.OK:
            return reply.answer.value
        return "too late" if self._commit.late else ""
