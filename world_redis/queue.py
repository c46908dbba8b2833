"""Taking, keeping and returning deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .events import NOT_HELD, Answer
from .ids import new_mark, partition_of
from .log import news_of
from .messages import Delivery, Held, Kind
from .scripts import Caller, ScriptCall, script_call
from .transition import Epoch

# Answers to a renewal after which the delivery is renewed no longer. One that is `over` is still held.
NOT_RENEWED: frozenset[str] = NOT_HELD | {"over"}


class Taken(NamedTuple):
    deliveries: list[Delivery]
    due_in: int  # ms until something falls due or lapses here, at most 1000
    crowded: bool  # a poison suspect waits for a worker that holds nothing else


class Claim(NamedTuple):
    """Answer to the claim of a queued step."""

    answer: Answer
    epoch: Epoch
    retry_in: int  # ms left, for owned and too_early
    starts: int  # executions started, this one included
    errors: int  # recorded errors
    crashes: int  # executions that ended without a recorded end
    first_started: int  # ms
    run_status: str
    cancel_requested: bool
    now: int  # ms


class Queue:
    """Deliveries of one consumer (a worker's id; part of every fence)."""

    def __init__(self, caller: Caller, consumer: str) -> None:
        self._call = caller
        self._consumer = consumer

    async def take(
        self, partition: int, queues: Sequence[str], *, runs: int, steps: int, empty: bool
    ) -> Taken:
        """At most `runs` run messages and `steps` step messages, from `queues` in order. `empty`: this worker
        holds nothing (a poison suspect is handed out only then, and alone)."""
        args = [self._consumer, runs, steps, list(queues), int(empty)]
        reply = await self._call(script_call("take", partition, args, queues=queues))
        return Taken([_delivery(row, partition, reply[4]) for row in reply[1]], reply[2], reply[3] == 1)

    async def renew(self, partition: int, held: Sequence[Held]) -> list[str]:
        """Begin the leases of `held` anew. One word each (see `renewed`)."""
        return renewed(await self._call(renewal(self._consumer, partition, held)))

    async def claim(self, deliveries: Sequence[Delivery], *, mark: bytes | None = None) -> list[Claim]:
        """May these queued steps of one run run here, now? One answer each. Anything but OK,
        SUPERSEDED and LOST has also settled the message or moved it to its due time."""
        mark = mark or new_mark()
        run_id, partition = deliveries[0].run_id, deliveries[0].partition
        steps = [[each.message_id, each.number, each.key] for each in deliveries]
        queues = list(dict.fromkeys(each.queue for each in deliveries))
        args = [run_id, self._consumer, steps]
        reply = await self._call(
            script_call("step_claim", partition, args, queues=queues, runs=[run_id], mark=mark)
        )
        _, status, cancel, now, rows = reply
        run = status.decode(), cancel == 1, now
        return [
            Claim(Answer(word.decode()), Epoch(slot, mark), left, starts, errors, crashes, first, *run)
            for word, slot, left, starts, errors, crashes, first in rows
        ]

    async def defer(
        self, partition: int, held: Sequence[Held], *, due_in: int = 0, queue: str = ""
    ) -> list[str]:
        """Give deliveries back (`due_in` 0) or put them off (ms); `queue` reroutes them. One word each."""
        args = [self._consumer, [list(item) for item in held], due_in, queue]
        queues = [queue] if queue else []
        return renewed(await self._call(script_call("message_defer", partition, args, queues=queues)))

    async def bury(self, delivery: Delivery, *, reason: str, detail: str, step_failed: bytes = b"") -> str:
        """Dead-letter a message; its run parks, or its step fails with `step_failed` as event data."""
        args = [
            delivery.run_id,
            delivery.message_id,
            delivery.number,
            self._consumer,
            reason,
            detail[:2000],
            step_failed,
        ]
        call = script_call(
            "message_bury",
            delivery.partition,
            args,
            queues=[delivery.queue],
            runs=[delivery.run_id],
        )
        word: bytes = (await self._call(call))[0]
        return word.decode()

    async def refuse(
        self,
        run_id: str,
        held: Sequence[Held],
        *,
        reason: str,
        detail: str,
        build: str,
        park_after: int,
        back_in: int,
    ) -> str:
        """This build cannot take the run on. Answers ``deferred`` or ``parked`` (refused for `park_after` ms,
        0: at once), or ``expired not_found superseded``."""
        args = [
            run_id,
            self._consumer,
            [list(item) for item in held],
            reason,
            detail[:8000],
            build,
            park_after,
            back_in,
        ]
        word: bytes = (
            await self._call(script_call("run_refuse", partition_of(run_id), args, runs=[run_id]))
        )[0]
        return word.decode()


def renewal(consumer: str, partition: int, held: Sequence[Held]) -> ScriptCall:
    """The call that begins the leases of `held` anew (see `renewed`)."""
    return script_call("renew", partition, [consumer, [list(item) for item in held]])


def renewed(reply: Sequence[Any]) -> list[str]:
    """One word per delivery. Of a renewal: ok · cancel · stop · look, or one of `NOT_RENEWED`."""
    return [word.decode() for word in reply[1]]


def _delivery(row: Sequence[Any], partition: int, now: int) -> Delivery:
    id, number, kind, run, key, queue, attempt, payload, news = row
    return Delivery(
        message_id=id.decode(),
        number=number,
        kind=Kind(kind.decode()),
        run_id=run.decode(),
        key=key.decode(),
        queue=queue.decode(),
        attempt=attempt,
        payload=payload,
        partition=partition,
        taken_at=now,
        news=news_of(news) if news else None,
    )
