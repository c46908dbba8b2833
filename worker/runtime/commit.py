"""Sending a session's transitions, and carrying out what was written."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence

from world_redis.events import Answer, EventType
from world_redis.messages import TIMER, Held
from world_redis.transition import Reply, Transition

from ..core.dispatch import Row
from ..core.plan import Plan
from ..sdk.errors import InternalError
from .parts import Parts
from .telling import count_rows, tell_end

log = logging.getLogger("worker.session")

_NOT_REFUSED = (Answer.OK, Answer.GONE)  # of `gone` the log may hold all: it answers a resend that settled
_ENDS = (EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)
_DISPOSED = EventType.HOOK_DISPOSED  # looked up once: CPython 3.11 takes its time over members of enums
_VAIN = 10  # refusals in a row with nothing new in the log


class CarrierLost(Exception):
    """Another delivery holds this session's message."""


class Commit:
    def __init__(self, parts: Parts, guard: Callable[[Sequence[Held]], None]) -> None:
        """`guard` is told what is about to be settled (see `Leaving.guard`)."""
        _, self._host, self._hand, self._executions, self._known, self._tokens = parts
        self._guard = guard
        self.late = False  # the latest answer took longer than a lease
        self._aside = 0.0  # seconds we were busy ourselves while it was on its way
        self._ended_at = 0.0  # when the last step code ended that the latest transition recorded
        self._vain = (0, 0)  # head of the log, and how many transitions in a row were refused there

    async def send(self, transition: Transition, meanwhile: Callable[[], None] | None = None) -> Reply:
        """Commit it; `meanwhile` is done while it is on its way.

        Raises InternalError, when strict, if it lets go of a message whose steps run."""
        self._guard(transition.settles)
        sent, self._aside = self._host.ports.now(), 0.0
        context, parent, data = self._known.context, "", b""
        queue = context.queue if context is not None else self._host.queues[0]
        if context is not None and context.parent_run_id and transition.decisions:
            last = transition.decisions[-1]
            if last.type in _ENDS:
                parent, data = context.parent_run_id, last.data
        reply = await self._host.log.append(
            transition,
            queue=queue,
            parent=parent,
            parent_data=data,
            meanwhile=meanwhile and functools.partial(self._do, meanwhile),
        )
        self._host.telemetry.transitions.labels(reply.answer).inc()
        self._known.hear(reply.now)
        self.late = (self._host.ports.now() - sent - self._aside) * 1000 >= self._host.limits.lease
        return reply

    def _do(self, meanwhile: Callable[[], None]) -> None:
        """No answer is late by it: like before and after an answer, the keeper renews while we are busy."""
        began = self._host.ports.now()
        meanwhile()
        self._aside += self._host.ports.now() - began

    def look_at_progress(self, reply: Reply) -> None:
        """A refusal always comes with something to learn. If it does not, again and again, this is a bug of
        ours: better to give the run back than to go round at full speed."""
        head, count = self._vain
        refused = reply.answer not in _NOT_REFUSED
        self._vain = (reply.head, count + 1 if refused and head == reply.head else 0)
        if self._vain[1] >= _VAIN:
            raise InternalError(f"refused {_VAIN} times at slot {reply.head}: {reply.answer.value}")

    def record_ends(self, transition: Transition, reply: Reply) -> None:
        """A fact that was judged is done with, whatever the verdict; so is one of a run that is not there."""
        self._ended_at = 0.0
        answers = reply.facts or [reply.answer] * len(transition.facts)
        for fact, answer in zip(transition.facts, answers, strict=True):
            ending = self._executions.ended.pop(fact.id, None)
            if ending is None:
                continue
            self._ended_at = max(self._ended_at, ending.at)
            about = functools.partial(self._hand.about, step=fact.id, attempt=ending.run.order.errors + 1)
            tell_end(self._host.telemetry, ending.call.name, ending.end, answer, about)

    def is_lost(self, reply: Reply, transition: Transition) -> bool:
        """Is the carrier really gone, or was this a resend that had settled it, or an old number of ours?"""
        carrier = transition.delivery
        if carrier is None or (reply.answer is Answer.GONE and carrier in transition.settles):
            return False
        return self._hand.holds(carrier)

    async def carry_out(self, reply: Reply, transition: Transition, made: Plan) -> None:
        count_rows(self._host.telemetry, made.rows)
        if made.withdraws:
            self._known.withdraw(made.withdraws)
        if made.sends:
            self._known.timer_armed |= any(send.key == TIMER for send in made.sends)
        if made.starts:
            self._start(reply, made)
        if not reply.unsettled:
            self._hand.drop(transition.settles)
        closed = [d.id for d in made.decisions if d.type is _DISPOSED]
        if closed:
            await self._tokens.release(closed)

    def _start(self, reply: Reply, made: Plan) -> None:
        """Execute what this transition claimed, unless the claim may be over before we heard of it."""
        if self.late:
            raise CarrierLost("the answer came after the lease")
        recovered = {each.step for each in made.rows if each.row is Row.OWNED_RECOVERY}
        for call in made.starts:
            start = reply.starts.get(call.id)
            if start is None or call.id in self._executions:  # its code ran ahead of its claim
                continue
            if call.id in recovered:
                log.warning("owned recovery", extra=self._hand.about(step=call.id, epoch=start.epoch.slot))
            self._time_start(call.id, reply.now, again=call.id in recovered)
            self._executions.start(call, start, now=reply.now)

    def _time_start(self, id: str, now: int, *, again: bool) -> None:
        telemetry, context = self._host.telemetry, self._known.context
        if id == "s1" and not again and context is not None:
            telemetry.time_to_first_step_seconds.observe(max(0, now - context.created_at) / 1000)
        if self._ended_at:
            telemetry.step_gap_seconds.observe(self._host.ports.now() - self._ended_at)
