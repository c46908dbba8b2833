"""One run in this process: its messages, its step executions, at most one body, one transition at a time.

A session is an actor. Deliveries are *joined* to it and executions end into it; its job goes round:

    gather facts → advance the body when nothing else of the run is outstanding → plan → commit → learn

It sends under its oldest message, the *carrier*: sequence numbers count under it, inline starts are stamped
with it, and it is settled last. When the carrier turns out to be held by another delivery the session stops
its bodies, gives the rest back and forgets what it knew. Results belong to the session, not to the body: a
body that bet on a fact the log has elsewhere is dropped and rebuilt, and the result is still recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from world_redis.events import Answer, Event, EventType, Position
from world_redis.hooks import HookAddress
from world_redis.ids import new_mark, partition_of
from world_redis.log import Snapshot
from world_redis.messages import TIMER, Delivery, Held, RunContext, unpack_run_message
from world_redis.transition import Epoch, Fact, Reply, Table, Transition

from ..core.calls import Deadlock, HookCall, Raised, Spinning, StepCall
from ..core.dispatch import Here, Row
from ..core.plan import Plan, Scene, plan, step_send
from ..core.records import BODY_DEADLOCK
from ..sdk.errors import WorkflowError
from ..sdk.values import encode_failure
from .body import Body
from .bodyloop import drive
from .counting import count_rows
from .ending import StepEnding
from .host import SPEC_READS, Host
from .refusal import Refusal, refusal_of, unknown_workflow, unreadable_spec
from .stepcall import StepOrder, StepRun

log = logging.getLogger("worker.session")

_FINISHED = ("completed", "failed", "cancelled")
_OVER = (*_FINISHED, "parked", "absent")  # nothing to plan
_BACK_IN = 2_000  # ms until a run that cannot be taken on here is offered again
_STOP_WITHIN = 5.0  # seconds that interrupted step code may take before we go on without it


_ENDS = (EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)
MAX_EVENTS_EXCEEDED = "MAX_EVENTS_EXCEEDED"


class CarrierLost(Exception):
    """Another delivery holds this session's message."""


class Session:
    """See the module. Made by the intake when a run message arrives for a run without one."""

    def __init__(self, run_id: str, host: Host) -> None:
        self.run_id = run_id
        self.partition = partition_of(run_id)
        self._host = host
        self._changed = asyncio.Event()
        # What it holds, oldest first, and how it counts under the carrier.
        self.held: dict[str, int] = {}
        self._timer_held = False
        self._seq = 0
        self._first: Delivery | None = None  # a first delivery carries the run's input
        # What it executes, and ends not recorded yet.
        self.runs: dict[str, StepRun] = {}
        self._ends: dict[str, StepEnding] = {}
        # What it knows.
        self._body: Body | None = None
        self._server = ""  # the body's log came from this server
        self._context: RunContext | None = None
        self._started = False
        self._seen = 0
        self._waits: dict[str, int] = {}  # open recorded waits → due ms
        self._timer_armed = False
        self._acted: set[str] = set()  # dropped ids already withdrawn
        self._table: Table | None = None
        self._need_table = False
        self._status = ""
        self._now, self._now_at = 0, 0.0  # server time last heard (ms), and when
        self._refusal: Refusal | None = None
        self._draining = False
        self._lost = ""  # a renewal said that the carrier is held by another delivery
        self._claimed: set[str] = set()  # hooks whose chosen token was asked for
        self._conflicts: dict[str, str] = {}  # hook id → run that holds its token
        self._verdict: Raised | None = None  # the machinery ends the run, whatever its body wants

    # --- mailbox: called from the intake, the keeper's callbacks and the worker ---------------------

    def join(self, delivery: Delivery) -> None:
        """Take a delivery of this run; its slot is free at once."""
        known = self.held.get(delivery.message_id)
        if known is not None:  # redelivered to the session that lives: only the number moves
            if delivery.message_id == self._carrier:
                self._seq = 0
            self._host.telemetry.single_flight_absorbed.inc()
        if delivery.attempt > 1 or delivery.payload == b"rescue":
            self._need_table = True
        if delivery.payload and delivery.number == 1 and delivery.payload != b"rescue":
            self._first = delivery
        self.held[delivery.message_id] = delivery.number
        self._timer_held |= delivery.key == TIMER
        self._host.holdings.add(self.partition, delivery.held)
        self._changed.set()

    def signal(self, held: Held, word: str) -> None:
        """A renewal's answer that was not `ok`."""
        if word == "cancel":
            for run in self.runs.values():
                run.signal()
        elif self.held.get(held.message_id) == held.number:
            if held.message_id == self._carrier:
                self._lost = word
            else:
                del self.held[held.message_id]
            self._changed.set()

    def drain(self) -> None:
        """Record what ends, start nothing new, then give the messages back."""
        self._draining = True
        self._changed.set()

    def interrupt(self) -> None:
        """The time to drain is over: stop what runs."""
        for run in self.runs.values():
            run.interrupt()

    @property
    def idle(self) -> bool:
        return not (self.held or self.runs or self._ends)

    @property
    def has_body(self) -> bool:
        return self._body is not None

    async def close(self) -> None:
        """Drop the body of a session that rests."""
        await self._drop_body()

    # --- the job ------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Work until nothing is held and nothing runs here."""
        while not self.idle:
            self._changed.clear()
            try:
                await self._pass()
            except CarrierLost as lost:
                log.warning("superseded", extra=self._about(reason=str(lost)))
                self._host.telemetry.superseded.labels("session").inc()
                await self._abandon()
            except Exception:
                log.exception("session failed", extra=self._about())
                await self._abandon()
            if not self.idle and not self._changed.is_set():
                await self._changed.wait()

    async def _pass(self) -> None:
        """Round and round until there is nothing to write."""
        while True:
            if self._lost:
                raise CarrierLost(self._lost)
            if not await self._stand():
                return
            facts = self._facts()
            ahead = bool(facts) and self._alone(facts)
            position = self._body.position if self._body is not None else None
            if ahead:
                await self._advance(facts)
            await self._look_at_calls()
            made = self._plan() if ahead or not facts else Plan()
            self._table = None
            transition = self._transition(facts, made, position, ahead)
            if transition is None:
                return await self._rest()
            reply = await self._commit(transition)
            await self._absorb(reply, transition, made, ahead)

    async def _stand(self) -> bool:
        """Have a body that stands on the log of the server spoken to. False: there is nothing to plan."""
        body = self._body
        if body is not None and self._server == self._host.ports.server() and not body.misled:
            return True
        if self._server != self._host.ports.server():
            self._status = ""  # what an earlier server said of the run may not have survived
        if self._refusal is not None or self._status in _OVER or not self.held:
            return True  # facts and settles only
        return await self._build()

    # --- knowing: build, advance, learn -------------------------------------------------------------

    async def _build(self) -> bool:
        """Have a body that stands where the log does. False: this run is not for us now."""
        await self._drop_body()
        self._server = self._host.ports.server()
        events: list[Event] = []
        if self._first is not None and self._seen == 0 and not self._need_table:
            message = unpack_run_message(self._first.payload)
            context, seed, given = message.context, message.seed, message.input
            events = [Event(1, EventType.RUN_CREATED, "", context.created_at, b"", given, "")]
        else:
            snapshot = await self._read(events)
            if snapshot is None:
                return await self._close()
            context, seed, given = snapshot
        self._first = None
        self._context = context
        if self._refusal is None:
            self._refusal = unreadable_spec(context, SPEC_READS) or unknown_workflow(
                context, self._host
            )
        if self._refusal is not None:
            await self._rest()
            return False
        workflow = self._host.workflow(context.workflow, context.version)
        assert workflow is not None
        self._body = Body(
            workflow, context, self.run_id, seed=seed, created_at=context.created_at, input=given
        )
        await self._feed(events)
        return True

    async def _read(self, events: list[Event]) -> tuple[RunContext, bytes, bytes] | None:
        """The whole log, its pages from one server. None: nothing to do here but settle."""
        while True:
            events.clear()
            server, seen = self._host.ports.server(), 0
            page = await self._host.log.read(self.run_id, seen=0, table=True)
            while page is not None:
                events += page.events
                seen = page.events[-1].slot if page.events else seen
                if not page.more:
                    break
                page = await self._host.log.read(self.run_id, seen=seen, table=True)
            if self._host.ports.server() == server:
                break
        self._status = _status_of_run(page)
        if page is None or self._status in _OVER:
            return None
        self._server = server
        self._hear(page.now)
        self._table, self._need_table = page.table, False
        return _context_of(page.record, self.run_id), page.record["seed"], events[0].data

    async def _feed(self, events: Sequence[Event]) -> None:
        """Give the body events of the log, in order."""
        for event in events:
            self._seen = event.slot
            match event.type:
                case EventType.RUN_STARTED:
                    self._started = True
                case EventType.WAIT_CREATED:
                    self._waits[event.id] = int(event.extra)
                    self._timer_armed = True
                case EventType.WAIT_COMPLETED:
                    self._waits.pop(event.id, None)
        body = self._body
        if body is not None and body.problem is None:
            body.learn(events)
            await drive(asyncio.get_running_loop(), body.run)
            self._notice()

    async def _advance(self, facts: Sequence[Fact]) -> None:
        """Bet that these facts are the run's next decisive events."""
        body = self._body
        assert body is not None
        events = [
            Event(0, fact.type, fact.id, fact.at, b"", fact.data, "")
            for fact in facts
            if fact.type is not EventType.STEP_RETRYING
        ]
        await drive(asyncio.get_running_loop(), lambda: body.advance(events))
        self._notice()

    def _notice(self) -> None:
        """What the body cannot go on with becomes a refusal; what it did wrong becomes its end."""
        body = self._body
        assert body is not None
        if body.problem is not None and not isinstance(body.problem, Deadlock | Spinning):
            self._refusal = refusal_of(body.problem)

    async def _drop_body(self) -> None:
        body, self._body = self._body, None
        self._started, self._waits, self._acted = False, {}, set()
        self._table = None
        if body is not None:
            await drive(asyncio.get_running_loop(), body.close)
            self._seen = 0

    # --- deciding -------------------------------------------------------------------------------------

    def _facts(self) -> list[Fact]:
        """Ends not recorded yet, and waits that are due."""
        facts = [self._end_fact(ending) for ending in self._ends.values()]
        if self._body is not None and not self._draining and self._refusal is None:
            now = self._server_now()
            listening = self._body.open
            for id, due in sorted(
                self._waits.items(), key=lambda item: (item[1], int(item[0][1:]))
            ):
                if due <= now and id in listening:
                    facts.append(Fact(EventType.WAIT_COMPLETED, id, at=max(now, due)))
        return facts

    def _end_fact(self, ending: StepEnding) -> Fact:
        end, run = ending.end, ending.run
        send = None
        if end.type is EventType.STEP_RETRYING:
            assert self._context is not None
            send = step_send(self._context, ending.call, self._server_now())
        return Fact(
            end.type,
            run.order.id,
            end.data,
            self._server_now(),
            run.order.epoch,
            send,
            end.delay,
            end.cause,
        )

    def _alone(self, facts: Sequence[Fact]) -> bool:
        """Is nothing of the run outstanding outside this session but hooks and timers? Then these facts
        are the next decisive events, unless a hook payload or a cancel overtakes them."""
        body = self._body
        if body is None or self._draining or self._refusal is not None or len(self.held) != 1:
            return False
        ending = {fact.id for fact in facts}
        if any(fact.type is EventType.STEP_RETRYING for fact in facts):
            return False
        for id, call in body.open.items():
            if id.startswith("s") and id not in ending:
                if not (isinstance(call, StepCall) and id in self.runs):
                    return False
        return all(id in body.open for id in ending)

    def _plan(self) -> Plan:
        body = self._body
        if body is None or self._refusal is not None or self._context is None:
            return Plan()
        outcome = self._verdict or body.outcome
        if isinstance(body.problem, Deadlock | Spinning):
            outcome = Raised(encode_failure(_deadlock(body.problem)), BODY_DEADLOCK)
        if self._draining and outcome is None:
            return Plan()
        limits = self._host.limits
        here = Here(
            held=self.held,
            in_flight=self.runs.keys() | self._ends.keys(),
            inline_ownership=limits.inline_ownership,
            queue_backstop=limits.queue_backstop,
            spec=self._context.spec,
        )
        free = min(limits.max_inline_steps - len(self.runs), self._host.slots.free)
        made = plan(
            Scene(
                run_id=self.run_id,
                context=self._context,
                started=self._started,
                fresh=body.fresh if self._verdict is None else (),
                open=body.open,
                dropped=body.dropped - self._acted,
                outcome=outcome,
                here=here,
                inline_free=free,
                may_run=self._host.may_run,
                conflicts=self._conflicts,
                waits={id: due for id, due in self._waits.items() if id in body.open},
                rearm=self._timer_held or self._table is not None,
                timer_armed=self._timer_armed,
                table=self._table if self._verdict is None else None,
                now=self._server_now(),
                entropy=lambda: self._host.ports.entropy(16),
            )
        )
        return made

    # --- committing -----------------------------------------------------------------------------------

    def _transition(
        self, facts: Sequence[Fact], made: Plan, position: Position | None, ahead: bool
    ) -> Transition | None:
        """The next transition, or None when there is nothing to write."""
        settles = self._settles(facts, made, ahead)
        asks = bool(facts or settles or self._need_table or not made.empty)
        if not asks or (not self.held and not facts):
            return None
        return Transition(
            run_id=self.run_id,
            mark=new_mark(),
            delivery=self._carrier_held(),
            seq=self._seq + 1,
            seen=self._seen,
            position=position,
            advanced=ahead,
            facts=[*facts, *made.facts],
            decisions=made.decisions,
            children=made.children,
            sends=made.sends,
            withdraws=made.withdraws,
            settles=settles,
            table=self._need_table,
        )

    def _settles(self, facts: Sequence[Fact], made: Plan, ahead: bool) -> list[Held]:
        """Everything held when nothing runs here any more and all is decided, else all but the carrier,
        which owns what runs."""
        if not self.held or self._refusal is not None or (self._draining and not made.ends_run):
            return []
        undecided = (bool(facts) and not ahead) or made.partial
        busy = bool(self.runs) or bool(made.starts) or bool(made.facts) or undecided
        keep = self._carrier if busy else None
        return [Held(id, number) for id, number in reversed(self.held.items()) if id != keep]

    async def _commit(self, transition: Transition) -> Reply:
        context = self._context
        assert context is not None
        last = transition.decisions[-1] if transition.decisions else None
        parent = context.parent_run_id if last is not None and last.type in _ENDS else ""
        parent_data = last.data if last is not None and parent else b""
        self._seq += 1
        reply = await self._host.log.append(
            transition, queue=context.queue, parent=parent, parent_data=parent_data
        )
        self._host.telemetry.transitions.labels(reply.answer.value).inc()
        self._hear(reply.now)
        return reply

    async def _absorb(self, reply: Reply, transition: Transition, made: Plan, ahead: bool) -> None:
        """Take an answer in: what was written, what to execute, what the body has not seen."""
        self._record_ends(transition, reply)
        if reply.answer is Answer.NOT_FOUND:
            self._status = "absent"
            await self._drop_body()
            return self._forget(self._all_held())
        if reply.answer in (Answer.SUPERSEDED, Answer.LOST, Answer.GONE) and self._is_lost(reply, transition):
            raise CarrierLost(reply.answer.value)
        self._status = reply.status
        written = reply.answer in (Answer.OK, Answer.GONE)
        self._need_table = not written
        self._table = reply.table
        if written:
            self._carry_out(reply, transition, made)
        if reply.status in _FINISHED:
            return await self._finished(reply, transition)
        if reply.answer is Answer.INVALID:
            self._overfull()
        if ahead and not written:
            return await self._drop_body()
        await self._feed_all(reply)

    def _record_ends(self, transition: Transition, reply: Reply) -> None:
        """A fact that was judged is done with, whatever the verdict."""
        for fact, answer in zip(transition.facts, reply.facts, strict=False):
            ending = self._ends.pop(fact.id, None)
            if ending is not None:
                self._host.telemetry.steps.labels(ending.call.name, _status_of(fact, answer)).inc()
                if answer is Answer.SUPERSEDED:
                    self._host.telemetry.superseded.labels("step").inc()
                    log.warning("superseded", extra=self._about(step=fact.id))

    def _is_lost(self, reply: Reply, transition: Transition) -> bool:
        """Is the carrier really gone, or was this a resend that had settled it, or an old number of ours?"""
        carrier = transition.delivery
        if carrier is None:
            return False
        if reply.answer is Answer.GONE and carrier in transition.settles:
            return False
        return self.held.get(carrier.message_id) == carrier.number

    def _carry_out(self, reply: Reply, transition: Transition, made: Plan) -> None:
        count_rows(self._host.telemetry, made.rows)
        for row in made.rows:
            if row.row is Row.OWNED_RECOVERY:
                log.warning("owned recovery", extra=self._about(step=row.step))
        self._acted.update(made.withdraws)
        if self._body is not None:
            self._body.withdrawn([id for id in made.withdraws if id != TIMER])
        if TIMER in made.withdraws:
            self._timer_armed = False
        elif any(send.key == TIMER for send in made.sends):
            self._timer_armed, self._timer_held = True, False
        for call in made.starts:
            epoch = reply.epochs.get(call.id)
            if epoch is not None:
                self._execute(call, epoch, reply.now)
        if not reply.unsettled:
            self._forget(transition.settles)

    async def _feed_all(self, reply: Reply) -> None:
        await self._feed(reply.events)
        more = reply.more
        while more and self._body is not None:
            page = await self._host.log.read(self.run_id, seen=self._seen, record=False)
            if page is None:
                return
            await self._feed(page.events)
            more = page.more

    async def _finished(self, reply: Reply, transition: Transition) -> None:
        """The run has ended, by us or by another: nothing is planned any more, what runs is told."""
        if transition.decisions and reply.answer is Answer.OK and self._context is not None:
            self._host.telemetry.runs.labels(self._context.workflow, reply.status).inc()
        for run in self.runs.values():
            run.signal()
        if reply.answer is not Answer.OK:
            self._forget(transition.settles)
        await self._drop_body()

    def _overfull(self) -> None:
        log.error("the log is full", extra=self._about(events=self._seen))
        self._verdict = Raised(b"", MAX_EVENTS_EXCEEDED)

    # --- executing ------------------------------------------------------------------------------------

    def _execute(self, call: StepCall, epoch: Epoch, started_at: int) -> None:
        step = self._host.step(call.name)
        assert step is not None
        order = StepOrder(
            run_id=self.run_id,
            id=call.id,
            step=step,
            input=call.input,
            options=call.options,
            epoch=epoch,
            errors=0,
            started_at=started_at,
            first_started=started_at,
        )
        run = self._host.steps.prepare(order)
        self.runs[call.id] = run
        self._host.begin(run)
        self._host.ports.spawn(self._run_step(call, run), f"step {call.name} {self.run_id} {call.id}")

    async def _run_step(self, call: StepCall, run: StepRun) -> None:
        end = await self._host.steps.execute(run)
        del self.runs[call.id]
        self._ends[call.id] = StepEnding(call, run, end, self._host.ports.now())
        self._changed.set()
        await run.over.wait()
        self._host.finish(run)

    # --- resting, refusing, letting go ------------------------------------------------------------------

    async def _rest(self) -> None:
        """Nothing to write. Refuse or give back what is held once nothing of ours runs here."""
        if self.runs or self._ends or not self.held:
            return
        if self._refusal is not None:
            await self._refuse(self._refusal)
        elif self._status in _OVER:
            await self._settle_alone()
        elif self._draining:
            await self._give_back()

    async def _refuse(self, refusal: Refusal) -> None:
        limits = self._host.limits
        held = self._all_held()
        word = await self._host.queue.refuse(
            self.run_id,
            held,
            reason=refusal.reason,
            detail=refusal.detail,
            build=self._host.build,
            park_after=0 if refusal.at_once else limits.park_after,
            back_in=_BACK_IN,
        )
        log.warning("run %s", word, extra=self._about(reason=refusal.reason, detail=refusal.detail))
        if word == "parked":
            self._host.telemetry.parked.labels(refusal.reason).inc()
        self._forget(held)
        self._refusal = None
        await self._drop_body()

    async def _close(self) -> bool:
        """Found finished, parked or absent when it was read: settle what is held."""
        if not (self.runs or self._ends):
            await self._settle_alone()
        return False

    async def _settle_alone(self) -> None:
        """Settle messages of a run that needs no body: nothing fences that."""
        held = self._all_held()
        transition = Transition(
            self.run_id, new_mark(), held[0], self._seq + 1, seen=self._seen, settles=held[::-1]
        )
        self._seq += 1
        await self._host.log.append(transition, queue=self._queue)
        self._forget(held)
        if self._status == "parked":
            self._status = ""  # the next wake says that it was let go

    async def _give_back(self) -> None:
        held = self._all_held()
        await self._host.queue.defer(self.partition, held)
        self._forget(held)
        await self._drop_body()

    async def _abandon(self) -> None:
        """Stop our bodies, give back what may still be ours, forget what we knew. What ends later is still
        recorded, if its epoch allows."""
        stopping = [run.over.wait() for run in self.runs.values()]
        for run in self.runs.values():
            run.interrupt()
        if stopping:
            await asyncio.wait(
                [asyncio.ensure_future(each) for each in stopping], timeout=_STOP_WITHIN
            )
        held, self._lost = self._all_held(), ""
        if held:
            await self._host.queue.defer(self.partition, held)
        self._forget(held)
        await self._drop_body()

    def _forget(self, held: Sequence[Held]) -> None:
        for item in held:
            if self.held.get(item.message_id) == item.number:
                if item.message_id == self._carrier:
                    self._seq = 0
                del self.held[item.message_id]
            self._host.holdings.drop(self.partition, item)

    # --- hooks, dropped calls -----------------------------------------------------------------------------

    async def _look_at_calls(self) -> None:
        """Register tokens users chose before their hooks are created; stop what a cancellable call ran."""
        body = self._body
        if body is None:
            return
        for call in body.fresh:
            if isinstance(call, HookCall) and call.chosen and call.id not in self._claimed:
                self._claimed.add(call.id)
                await self._claim_token(call)
        for id in body.dropped:
            call_open = body.open.get(id)
            if isinstance(call_open, StepCall) and call_open.cancellable and id in self.runs:
                self.runs[id].cancel()

    async def _claim_token(self, call: HookCall) -> None:
        mine = HookAddress(self.run_id, call.id)
        holder = await self._host.tokens.claim(call.token, mine)
        if holder == mine:
            return
        owner = await self._host.log.read(holder.run_id, seen=1 << 50, table=True)
        table = owner.table if owner is not None and owner.status not in _FINISHED else None
        opened = int((owner.record.get("h") or b"0") if owner is not None else b"0")
        waiting = table is not None and int(holder.hook[1:]) > opened
        if table is not None and (waiting or any(hook.id == holder.hook for hook in table.hooks)):
            self._conflicts[call.id] = holder.run_id
        elif not await self._host.tokens.take_over(call.token, holder, mine):
            self._conflicts[call.id] = holder.run_id

    # --- small things ---------------------------------------------------------------------------------------

    @property
    def _carrier(self) -> str | None:
        return next(iter(self.held), None)

    def _carrier_held(self) -> Held | None:
        id = self._carrier
        return None if id is None else Held(id, self.held[id])

    def _all_held(self) -> list[Held]:
        return [Held(id, number) for id, number in self.held.items()]

    @property
    def _queue(self) -> str:
        return self._context.queue if self._context is not None else self._host.queues[0]

    def _hear(self, now: int) -> None:
        if now:
            self._now, self._now_at = now, self._host.ports.now()

    def _server_now(self) -> int:
        """Server time as far as known: ms last heard plus what has passed here since."""
        return self._now + int((self._host.ports.now() - self._now_at) * 1000)

    def _about(self, **more: Any) -> dict[str, Any]:
        carrier = self._carrier_held()
        about = {"run_id": self.run_id, "message": carrier and carrier.message_id}
        return about | {"number": carrier and carrier.number} | more


def _status_of_run(page: Snapshot | None) -> str:
    if page is None:
        return "absent"
    return "parked" if page.record.get("parked") else page.status


def _status_of(fact: Fact, answer: Answer) -> str:
    return fact.type.value.removeprefix("step_") if answer is Answer.OK else answer.value


def _deadlock(problem: Deadlock | Spinning) -> WorkflowError:
    what = "waits for nothing that can happen" if isinstance(problem, Deadlock) else "never comes to rest"
    return WorkflowError(f"the workflow {what}: {'; '.join(problem.frames) or 'no frames'}")


def _context_of(record: dict[str, bytes], run_id: str) -> RunContext:
    text = {name: value.decode() for name, value in record.items() if name != "seed" and name != "pmark"}
    return RunContext(
        workflow=text["workflow"],
        version=int(text["version"]),
        spec=int(text["spec"]),
        queue=text["queue"],
        created_at=int(text["created"]),
        root_run_id=text["root"],
        parent_run_id=text["parent"],
        parent_step=text["parent_step"],
        deployment=text["deployment"],
        traceparent=text["traceparent"],
    )
