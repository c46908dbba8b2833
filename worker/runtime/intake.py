"""Taking messages: only what this process can run now, partition by partition, woken by the bells.

Three small jobs: `take` asks the store and routes what comes; the bell job waits on a connection of its own;
the timer is the time until something falls due, told by every take, at most a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from world_redis.events import NOT_HELD
from world_redis.messages import REASONS, Delivery, Held, Kind, RunMessage, unpack_run_message

from .delivery import StepDelivery, about, bury, pass_on_cancel
from .host import Host
from .queued import QueuedSteps
from .session import Session

log = logging.getLogger("worker.intake")

# ms by which a take is early for what falls due: the time that is told and the wait are rounded up, and the
# way comes on top. One that comes too early is told 1 and waits it out: no due time costs three takes.
_EARLY = 1
_SECOND_LOOK = 0.1  # seconds after which slots count as held by long steps


class Intake:
    """Everything this process has taken, and the loop that takes more."""

    def __init__(self, host: Host, partitions: Callable[[], Sequence[int]], *, run_bound: int) -> None:
        self._host = host
        self._partitions = partitions  # those to read; their number may grow
        self._first = 0  # where the next round begins: nobody is always first
        self._run_bound = run_bound  # run messages being worked on at once
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # least recently used first
        self._busy: dict[str, asyncio.Task[Any]] = {}  # sessions whose job runs
        # Not by message: one taken again has two, until the first ends, and after a fail-over of one number.
        self._steps: dict[StepDelivery, Held] = {}
        self._queued = QueuedSteps(host)
        self._others: set[asyncio.Task[Any]] = set()
        self._taking = False  # a take is on its way, and may bring something
        self._crowded = False  # a poison suspect waits for us to be empty
        self._limited = False  # the last takes left work behind, or could not look
        self._fruitless = False  # and brought nothing
        self._wake = asyncio.Event()
        self._freed = asyncio.Event()
        self._freed_at = -1.0  # when something last ended here, by the ports' clock
        host.on_slot = self._free
        self._offer_figures()

    def _offer_figures(self) -> None:
        """Counted when somebody asks, not at every change."""
        telemetry = self._host.telemetry
        telemetry.in_flight.labels("run").set_function(lambda: len(self._busy))
        telemetry.in_flight.labels("step").set_function(lambda: len(self._steps))
        telemetry.in_flight.labels("body").set_function(lambda: self._host.slots.taken)
        telemetry.live_bodies.set_function(lambda: len(self._sessions))

    # --- state ------------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Nothing in flight here."""
        return not (self._busy or self._steps or self._others)

    @property
    def at_rest(self) -> bool:
        """The same, and nothing will come."""
        return self.empty and not self._taking

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    async def hungry(self) -> None:
        """Returns when a ring would be of use to this process. One that took nothing, because what is left
        does not fit here, has rung on: it must not answer its own ring at once."""
        while sum(self._budget()) == 0 or self._fruitless:
            self._freed.clear()
            await self._host.ports.within(self._freed.wait(), _SECOND_LOOK)
            self._fruitless = False

    def _free(self) -> None:
        """Something ended here. Work that a take had to leave may fit now; other work rings its bell."""
        self._freed_at = self._host.ports.now()
        self._freed.set()
        if self._limited:
            self._wake.set()

    def ring(self) -> None:
        """There may be work."""
        self._wake.set()

    def signal(self, message_id: str, number: int, word: str) -> None:
        """A renewal answered something else than ok (called on the loop)."""
        held = Held(message_id, number)
        step = next((step for step, each in self._steps.items() if each == held), None)
        if step is not None:
            step.signal(word)
            return
        for run_id in list(self._busy):
            self._sessions[run_id].signal(held, word)

    # --- taking -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take until draining."""
        while not self._host.draining:
            self._wake.clear()
            self._taking = True
            due = await self.take()
            self._taking = False
            if due > 0 and not self._host.draining:
                await self._host.ports.sleep(0)  # first what came, then our wait
                await self._host.ports.within(self._wake.wait(), due / 1000)

    async def take(self) -> int:
        """One round over the partitions. Returns ms to wait before the next: 0 when there may be more."""
        due, more, found, self._limited = 1000, False, 0, False
        partitions = self._partitions()
        self._first = (self._first + 1) % len(partitions)
        for partition in (*partitions[self._first :], *partitions[: self._first]):
            if self._host.draining:
                break
            runs, steps = self._budget()
            asked = self._host.ports.now()
            taken = await self._host.queue.take(
                partition, self._host.queues, runs=runs, steps=steps, empty=self.empty
            )
            self._crowded = taken.crowded
            found += len(taken.deliveries)
            full = len(taken.deliveries) >= max(1, min(runs, steps))
            self._limited |= full or taken.crowded or min(runs, steps) == 0
            await self._receive(partition, taken.deliveries, asked)
            due = min(due, taken.due_in)
            more = more or len(taken.deliveries) == runs + steps > 0
        self._fruitless = self._limited and not found
        return 0 if more else max(1, due - _EARLY)

    async def _receive(self, partition: int, deliveries: Sequence[Delivery], asked: float) -> None:
        """Work on what a take asked for at `asked` has brought."""
        if deliveries and self._host.draining:
            await self._host.queue.defer(partition, [delivery.held for delivery in deliveries])
            return
        if deliveries and self._is_late(asked):
            deliveries = await self._still_ours(partition, deliveries)
        for delivery in deliveries:
            self._route(delivery)

    def _is_late(self, asked: float) -> bool:
        """Has so much of a lease passed that the keeper's next round may come too late?"""
        return (self._host.ports.now() - asked) * 3000 >= self._host.limits.lease

    async def _still_ours(self, partition: int, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Those whose lease begins anew in time: nobody has renewed them before we knew of them. What comes
        from a server that is as slow once more is given back."""
        asked = self._host.ports.now()
        words = await self._host.queue.renew(partition, [delivery.held for delivery in deliveries])
        kept = [d for d, word in zip(deliveries, words, strict=True) if word not in NOT_HELD]
        if kept and self._is_late(asked):
            log.warning("taken too late to begin", extra={"deliveries": len(kept)})
            await self._host.queue.defer(partition, [delivery.held for delivery in kept])
            return []
        return kept

    def _budget(self) -> tuple[int, int]:
        """Run messages and step messages this process may take now."""
        if self._crowded and not self.empty:
            return 0, 0  # let what runs end; then the suspect comes here alone
        runs = max(0, self._run_bound_now() - len(self._busy))
        return runs, max(0, self._host.slots.free - self._unclaimed())

    def _run_bound_now(self) -> int:
        """While slots turn over quickly, a run is better off waiting for one than having its first steps
        queued; once they are held by long steps, runs must not wait behind them."""
        slots = self._host.slots
        turning = slots.free > 0 or self._host.ports.now() - self._freed_at < _SECOND_LOOK
        return min(slots.size, self._run_bound) if turning else self._run_bound

    def _unclaimed(self) -> int:
        """Step deliveries that have not taken their slot yet."""
        return sum(1 for step in self._steps if not step.has_slot)

    # --- routing ----------------------------------------------------------------------------------

    def _route(self, delivery: Delivery) -> None:
        self._host.holdings.add(delivery.partition, delivery.held)
        if delivery.attempt > 1:
            self._host.telemetry.redeliveries.labels(delivery.kind.value).inc()
            log.warning("redelivered", extra=about(delivery))
        match delivery.kind:
            case Kind.STEP:
                self._serve_step(delivery)
            case Kind.CANCEL:
                self._serve_other(delivery, pass_on_cancel(self._host, delivery))
            case _ if delivery.attempt > self._host.limits.max_deliveries:
                text = f"handed out {delivery.attempt} times without an end"
                self._serve_other(delivery, bury(self._host, delivery, "max_deliveries", text))
            case _:
                self._read_run(delivery)

    def _read_run(self, delivery: Delivery) -> None:
        payload, message = delivery.payload, None
        if payload == b"rescue":
            self._host.telemetry.rescues_fired.inc()
            log.warning("rescue fired", extra=about(delivery))
        if payload and payload not in REASONS:
            try:
                message = unpack_run_message(payload)
            except ValueError as error:
                self._serve_other(delivery, bury(self._host, delivery, "undecodable", str(error)))
                return
        self._serve_run(delivery, message)

    def _serve_run(self, delivery: Delivery, message: RunMessage | None) -> None:
        session = self._sessions.get(delivery.run_id)
        if session is None:
            session = self._sessions[delivery.run_id] = Session(delivery.run_id, self._host)
        self._sessions.move_to_end(delivery.run_id)
        session.join(delivery, message)
        if delivery.run_id not in self._busy:
            task = self._host.ports.spawn(self._serve_session(session), f"run {session.run_id}")
            self._busy[session.run_id] = task

    async def _serve_session(self, session: Session) -> None:
        try:
            await session.serve()
        except Exception:
            log.exception("session ended", extra={"run_id": session.run_id})
        finally:
            del self._busy[session.run_id]
            session.release()
            resting = self._too_many(session)
            self._free()
        for each in resting:
            each.close()

    def _too_many(self, ended: Session) -> list[Session]:
        """Take out the sessions that rest beyond the bound on live bodies, the longest unused first; one at
        work is never among them."""
        found = []
        spent = not ended.has_body or self._host.limits.live_runs == 0
        if spent and self._sessions.get(ended.run_id) is ended:
            found.append(self._sessions.pop(ended.run_id))
        spare = len(self._sessions) - max(self._host.limits.live_runs, len(self._busy))
        for run_id in list(self._sessions)[: max(0, spare)]:
            if run_id not in self._busy:
                found.append(self._sessions.pop(run_id))
        return found

    def _serve_step(self, delivery: Delivery) -> None:
        step = StepDelivery(delivery, self._host, self._queued)
        self._steps[step] = delivery.held
        self._host.ports.spawn(self._serve_and_forget(delivery, step), f"step {delivery.message_id}")

    async def _serve_and_forget(self, delivery: Delivery, step: StepDelivery) -> None:
        try:
            await step.serve()
        finally:
            del self._steps[step]
            # Another one here may have this number, too, after a fail-over.
            if delivery.held not in self._steps.values():
                self._host.holdings.drop(delivery.partition, delivery.held)
            self._free()

    def _serve_other(self, delivery: Delivery, job: Any) -> None:
        async def serve() -> None:
            try:
                await job
            except Exception:
                log.exception("delivery failed", extra=about(delivery))
            finally:
                self._host.holdings.drop(delivery.partition, delivery.held)

        task = self._host.ports.spawn(serve(), f"{delivery.kind} {delivery.message_id}")
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    # --- leaving ----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take nothing more; sessions record what ends and give their messages back."""
        self._wake.set()
        for run_id in list(self._busy):
            self._sessions[run_id].drain()

    def interrupt(self) -> None:
        """Stop step code that can be stopped."""
        for run_id in list(self._busy):
            self._sessions[run_id].interrupt()
        for step in list(self._steps):
            step.interrupt()

    def close(self) -> None:
        """Drop every live body."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
