"""Claims and ends of queued steps: those of one run that come in one turn of the loop share a call.

The script judges each claim by itself. Ends share a transition: each is a fact, judged by its own step and
epoch, and its message is settled with it. The transition counts under the first message. When that is not
held any more, or one of the ends was refused, nothing is settled by it, and each message settles alone, under
its own fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from world_redis.events import NOT_HELD, Answer
from world_redis.ids import new_mark
from world_redis.log import NOTHING_NEW
from world_redis.messages import Delivery, Held
from world_redis.queue import Claim
from world_redis.transition import Fact, Reply, Transition

from .host import Host
from .together import Together


class QueuedEnd(NamedTuple):
    """How a queued step's execution ended, to be recorded under its message."""

    run_id: str
    run_queue: str  # where the run's wakes go
    held: Held
    fact: Fact


class QueuedSteps:
    """Claims and ends of a process, asked for one by one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._claims: Together[Delivery, Claim] = Together(host.ports, host.queue.claim)
        self._ends: Together[QueuedEnd, Answer] = Together(host.ports, self._record)

    async def claim(self, delivery: Delivery) -> Claim:
        """May its step run here, now? (See `Queue.claim`.)"""
        return await self._claims(delivery.run_id, delivery)

    async def record(self, end: QueuedEnd) -> Answer:
        """Write an end and settle its message. Answers how the end was judged. A retry is sent only where its
        own message is settled, so it shares with nobody."""
        if end.fact.send is not None:
            return (await self._record([end]))[0]
        return await self._ends((end.run_id, end.run_queue), end, size=len(end.fact.data))

    async def _record(self, ends: Sequence[QueuedEnd]) -> Sequence[Answer]:
        facts = [end.fact for end in ends]
        reply = await self._append(ends[0], 2, facts, [end.held for end in ends])
        if reply.answer is Answer.STALE or reply.answer in NOT_HELD:
            await self._settle_apart(ends, reply.answer)
        return reply.facts or [reply.answer] * len(ends)

    async def _settle_apart(self, ends: Sequence[QueuedEnd], answer: Answer) -> None:
        """An end that was refused is a message that has done its part, too."""
        first, *others = ends
        if answer is Answer.STALE:  # else the first is not ours any more
            await self._append(first, 3, [], [first.held])
        for end in others:
            await self._append(end, 2, [], [end.held])

    async def _append(
        self, end: QueuedEnd, seq: int, facts: Sequence[Fact], settles: Sequence[Held]
    ) -> Reply:
        """A transition under the message of `end`, whose claim was its first."""
        transition = Transition(
            end.run_id, new_mark(), end.held, seq, seen=NOTHING_NEW, facts=facts, settles=settles
        )
        reply = await self._host.log.append(transition, queue=end.run_queue)
        self._host.telemetry.transitions.labels(reply.answer.value).inc()
        return reply
