"""One run in this process: its messages, its step executions, at most one body, one transition at a time.

A session is an actor. Deliveries are *joined* to it and executions end into it; its job goes round:

    gather facts → advance the body when nothing else of the run is outstanding → plan → commit → learn

It sends under its oldest message, the *carrier*. When the carrier turns out to be held by another delivery,
the session stops its steps, gives the rest back and forgets what it knew. A result is recorded even when
the body that waited for it was dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from world_redis.events import FINISHED, NOT_HELD, Answer, EventType
from world_redis.ids import partition_of
from world_redis.messages import DEADLINE, REASONS, TIMER, Delivery, Held, RunMessage
from world_redis.transition import Fact, Reply, Transition

from ..core.calls import Deadlock, Outcome, Raised, Spinning
from ..core.plan import Plan
from ..core.records import (
    BODY_DEADLOCK,
    CANCELLED,
    MAX_EVENTS_EXCEEDED,
    RUN_TIMEOUT,
    Failed,
    pack,
)
from ..sdk.errors import InternalError, RunTimeoutError, WorkflowError
from ..sdk.values import encode_failure
from .body import Body
from .commit import CarrierLost, Commit
from .deferral import Deferral
from .drafting import Drafting
from .executions import Executions
from .hand import Hand
from .host import Host
from .knowledge import Knowledge
from .leaving import Leaving
from .parts import Parts
from .planning import Planning
from .refusal import Refusal, refusal_of, refusal_of_run
from .telling import count_rows, failure_text
from .tokens import ChosenTokens

log = logging.getLogger("worker.session")


class Session:
    """See the module. Made by the intake when a run message arrives for a run without one."""

    def __init__(self, run_id: str, host: Host) -> None:
        self.run_id = run_id
        self.partition = partition_of(run_id)
        self._host = host
        self._changed = asyncio.Event()
        self._hand = Hand(run_id, self.partition, host.holdings)
        self._executions = Executions(run_id, host, self._changed.set)
        self._known = Knowledge(run_id, host)
        self._tokens = ChosenTokens(run_id, host)
        parts = Parts(run_id, host, self._hand, self._executions, self._known, self._tokens)
        self._leaving = Leaving(parts)
        self._planning = Planning(parts)
        self._drafting = Drafting(parts)
        self._commit = Commit(parts, self._leaving.guard)
        self._deferral = Deferral(parts, self._commit)
        self._first: RunMessage | None = None  # of a first delivery: it has the run's input
        self._refusal: Refusal | None = None  # this process cannot take the run on
        self._verdict: Outcome | None = None  # the machinery ends the run, whatever its body wants
        self._lost: tuple[Held, str] | None = None  # a renewal said that another delivery holds this carrier
        self._draining = False
        self._failed: set[str] = set()  # cancelled steps that this session tried to fail

    # --- mailbox: called from the intake and, through it, from the keeper -------------------------

    def join(self, delivery: Delivery, message: RunMessage | None = None) -> None:
        """Take a delivery of this run, and what it carries but for a wake; its slot is free at once. One that
        is held here already only changes its number."""
        self._known.hear(delivery.taken_at)
        known = self._hand.take(delivery)
        if known:
            self._host.telemetry.single_flight_absorbed.inc()
        look = delivery.payload in REASONS
        if self._known.status in ("parked", "absent"):
            self._known.status = ""  # a wake says that something has changed
        # A live body needs no look at its steps, unless something says that an owner may be gone.
        ownership = self._host.limits.inline_ownership
        self._known.need_table |= look or delivery.attempt > 1 or not ownership
        self._first = message if delivery.number == 1 else None
        self._known.news = delivery.news
        self._changed.set()

    def signal(self, held: Held, word: str) -> None:
        """A renewal's answer that was not `ok`."""
        if not self._hand.holds(held):
            return
        if word == "cancel":
            self._deferral.cancelling = True
            self._executions.signal()
        elif word == "over":
            self._deferral.cancelling = True
            self._executions.finish()
        elif word == "look":
            self._known.need_table = True
            self._changed.set()
        elif held == self._hand.carrier:
            self._lost = held, word
            self._changed.set()
        else:
            self._hand.drop([held])

    def drain(self) -> None:
        """Record what ends, start nothing new, then give the messages back."""
        self._draining = True
        self._changed.set()

    def interrupt(self) -> None:
        """The time to drain is over: stop what runs."""
        self._executions.interrupt()

    @property
    def idle(self) -> bool:
        return not (self._hand or self._executions)

    @property
    def has_body(self) -> bool:
        return self._known.body is not None

    def release(self) -> None:
        """Nobody works here any more: whatever is still held must lapse, not be renewed."""
        self._hand.drop(self._hand.all)

    def close(self) -> None:
        """Drop the body of a session that rests."""
        self._known.drop_body()

    # --- the job ----------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Work until nothing is held and nothing runs here."""
        while not self.idle:
            self._changed.clear()
            try:
                await self._pass()
            except CarrierLost as lost:
                log.warning("superseded", extra=self._hand.about(reason=str(lost)))
                self._host.telemetry.superseded.labels("session").inc()
                await self._leaving.abandon()
            except Exception as error:
                log.exception("session failed", extra=self._hand.about())
                await self._leaving.abandon(Refusal("internal_error", repr(error)))
            if self._waits():
                await self._changed.wait()

    def _waits(self) -> bool:
        """Is there something to wait for? Ends that came in while the hand was given back are not: nobody
        will call for them."""
        return not self.idle and not (self._executions.ended and not self._hand)

    async def _pass(self) -> None:
        """Round and round until there is nothing to write."""
        while True:
            self._look_at_carrier()
            if not self._known.stands():
                await self._stand()
            self._look_at_clock()
            if self._has_to_tell():
                await self._known.tell()
            facts = self._facts()
            ahead = bool(facts) and self._alone(facts)
            position = self._known.position
            if ahead:
                self._known.advance(facts)
            elif not facts and self._news_fit():
                position, ahead = self._known.advance_on_news(), True
            if ahead:
                self._look_at_problem()
                if self._has_to_tell():
                    self._known.tell_ahead()
            made = await self._plan(ahead=ahead) if ahead or not facts else Plan()
            keeps = self._keeps_hand(made)
            transition = self._drafting.draft(facts, made, position, ahead=ahead, keeps_hand=keeps)
            if transition is None:
                count_rows(self._host.telemetry, made.rows)
                return await self._rest()
            leaving = self._draining or self._lost is not None
            reply = await self._deferral.send(transition, made, leaving=leaving)
            await self._absorb(reply, transition, made, ahead)
            if self._has_all():
                return

    def _has_all(self) -> bool:
        """Would one more round find nothing to write? So it is after most transitions of a run of steps."""
        known, body = self._known, self._known.body
        return (
            bool(self._executions.running)
            and not self._executions.ended
            and body is not None
            and known.stands()
            and body.is_quiet
            and not (known.waits or known.timer_armed or known.table or known.need_table)
            and not known.out_of_time
            and len(self._hand) == 1
            and not self._hand.fired
            and not (self._refusal or self._verdict or self._lost or self._draining)
        )

    def _has_to_tell(self) -> bool:
        """Has the body passed over payloads, in a pass that may be settled? Of one that is given back, its
        successor tells."""
        body = self._known.body
        if body is None or not body.passed_over or self._refusal is not None:
            return False
        return not self._draining or self._outcome(body) is not None

    def _look_at_carrier(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None and lost[0] == self._hand.carrier:
            raise CarrierLost(lost[1])

    # --- knowing ----------------------------------------------------------------------------------

    async def _stand(self) -> None:
        """Have a body that stands where the log does, if this run is for us."""
        known = self._known
        if known.moved:
            known.status = ""
        if self._refusal is not None or known.over or not self._hand:
            return
        first, self._first = self._first, None
        learned = await known.learn_run(None if known.need_table else first)
        if learned is None:
            return
        assert known.context is not None
        self._refusal = refusal_of_run(known.context, self._host)
        if self._refusal is None:
            known.build(*learned)
            self._look_at_problem()

    def _look_at_problem(self) -> None:
        """What a body cannot go on with is a refusal; what its code did wrong ends the run (`_outcome`)."""
        body = self._known.body
        problem = body.problem if body is not None else None
        if problem is not None and not isinstance(problem, Deadlock | Spinning):
            self._refusal = refusal_of(problem)

    def _outcome(self, body: Body) -> Outcome | None:
        """How the run ends, if it does."""
        if self._verdict is None and isinstance(body.problem, Deadlock | Spinning):
            return Raised(encode_failure(_at_fault(body.problem)), BODY_DEADLOCK)
        return self._verdict or body.outcome

    def _look_at_clock(self) -> None:
        """A run that is out of time fails, whatever its body waits for."""
        context, body = self._known.context, self._known.body
        if context is not None and body is not None and body.outcome is None and self._known.out_of_time:
            error = RunTimeoutError(self.run_id, context.timeout / 1000)
            self._verdict = Raised(encode_failure(error), RUN_TIMEOUT)

    # --- deciding ---------------------------------------------------------------------------------

    def _facts(self) -> list[Fact]:
        """Ends not recorded yet, and waits that are due."""
        known = self._known
        if known.context is None:
            return []
        stopping = known.body.stopping if known.body is not None else frozenset[str]()
        facts = self._executions.facts(known.context, known.now(), stopping)
        decides = bool(self._hand) and not self._draining
        if decides and self._refusal is None and self._verdict is None:
            facts += known.due_waits()
            facts += self._cancelled_steps()
        return facts

    def _cancelled_steps(self) -> list[Fact]:
        """Cancellable steps whose awaiter was cancelled: one that runs here is stopped, one that waits fails
        now; the body waits for the end either way."""
        body = self._known.body
        if body is None or not body.stopping:
            return []
        recorded = body.stopping - {call.id for call in body.fresh}
        self._executions.cancel(recorded)
        waiting = recorded - self._executions.ids - self._failed
        self._failed |= waiting
        data = pack(Failed(CANCELLED, b""))
        return [Fact(EventType.STEP_FAILED, id, data, at=self._known.now()) for id in sorted(waiting)]

    def _alone(self, facts: Sequence[Fact]) -> bool:
        """Is nothing of the run outstanding outside this session but hooks and timers? Then these facts are
        its next decisive events, unless a payload or a cancel request overtakes them."""
        body = self._known.body
        if body is None or self._draining or self._refusal or self._verdict or len(self._hand) != 1:
            return False
        open = body.open
        for fact in facts:
            # A retry is not decisive; failing a step that waits may meet one that has just begun.
            unsure = fact.type is EventType.STEP_RETRYING or (fact.id[0] == "s" and fact.epoch is None)
            if unsure or fact.id not in open:
                return False
        ending, here = {fact.id for fact in facts}, self._executions.running
        if len(ending) == len(open):
            return True
        outside = [id for id in open if id[0] == "s" and id not in ending and id not in here]
        return not outside

    def _news_fit(self) -> bool:
        """May the body be advanced on what its wake told? A transition must follow, which finds out whether
        the log has it; whoever is to look at the open steps, or to leave, hears from the log first."""
        known = self._known
        follows = len(self._hand) > (1 if self._executions else 0)
        reads = known.need_table or known.table is not None or self._draining
        return known.has_next and follows and not reads and self._refusal is None and known.stands()

    async def _plan(self, *, ahead: bool) -> Plan:
        known, body = self._known, self._known.body
        table, known.table = known.table, None
        if body is None or known.context is None or self._refusal is not None or not self._hand:
            return Plan()
        if body.betting and not ahead:
            raise InternalError(f"run {self.run_id}: a bet was neither won nor lost")
        outcome = self._outcome(body)
        if self._draining and outcome is None:
            return Plan()
        return await self._planning.plan(body, outcome, table, judged=self._verdict is not None)

    def _keeps_hand(self, made: Plan) -> bool:
        """What is held is refused or given back once nothing runs here: no transition settles it."""
        return self._refusal is not None or (self._draining and not made.ends_run)

    # --- committing -------------------------------------------------------------------------------

    async def _absorb(self, reply: Reply, transition: Transition, made: Plan, ahead: bool) -> None:
        """Take an answer in: what was written, what to execute, what the body has not seen."""
        known = self._known
        self._commit.record_ends(transition, reply)
        self._commit.look_at_progress(reply)
        if reply.answer in NOT_HELD and self._commit.is_lost(reply, transition):
            raise CarrierLost(reply.answer.value)
        written = reply.answer is Answer.OK
        on_news = ahead and not transition.facts
        known.status, known.table = reply.status, reply.table
        known.need_table |= not written and not (on_news and reply.answer is Answer.STALE)
        if written:
            await self._commit.carry_out(reply, transition, made)
            if made.starts:  # first their code, then our books
                await self._host.ports.sleep(0)
        else:
            self._hand.fired |= {send.key for send in made.sends} & {TIMER, DEADLINE}
            self._executions.forget_prepared()
        if reply.status in FINISHED or reply.answer is Answer.NOT_FOUND:
            return await self._run_over(reply, transition)
        if reply.answer is Answer.GONE:  # settled, perhaps by this very transition: the log knows
            self._hand.drop(transition.settles)
            return known.drop_body()
        if reply.parked:  # what it was armed with is gone: the wake that ends the pause builds anew
            return known.drop_body()
        if reply.answer is Answer.INVALID:
            log.error("the log is full", extra=self._hand.about(events=reply.head))
            full = WorkflowError(f"the run's log is full at {reply.head} events; see continue_as_new()")
            self._verdict = Raised(encode_failure(full), MAX_EVENTS_EXCEEDED)
        # An answer of another server tells of a log that this body does not stand on.
        if known.moved or (not written and ((ahead and not on_news) or _bets(made))):
            return known.drop_body()
        known.take_in(reply, transition)
        if reply.more:
            await known.feed_rest()
        if on_news and known.betting:  # the log does not hold what the wake told
            return known.drop_body()
        self._look_at_problem()

    async def _run_over(self, reply: Reply, transition: Transition) -> None:
        """The run has ended, by us or by another: nothing is planned any more, what runs is told."""
        context, ours = self._known.context, bool(transition.decisions) and reply.answer is Answer.OK
        if ours and context is not None:
            self._host.telemetry.runs.labels(context.workflow, reply.status).inc()
            if reply.status == "failed":
                error = failure_text(transition.decisions[-1].data)
                log.warning("run failed", extra=self._hand.about(workflow=context.workflow, error=error))
            goes_on = any(child.step == "" for child in transition.children)
            if context.start_key and not goes_on:
                await self._host.claims.end(context.start_key, self._host.limits.retention)
        self._executions.finish()
        self._hand.drop(transition.settles if reply.status in FINISHED else self._hand.all)
        self._known.drop_body()
        self._verdict = None
        await self._tokens.release_all()

    # --- resting, refusing, letting go ------------------------------------------------------------

    async def _rest(self) -> None:
        """Nothing to write. Refuse or give back what is held, once nothing of ours runs here."""
        if self._executions or not self._hand:
            return
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            await self._leaving.refuse(refusal)
        elif self._draining:
            await self._leaving.give_back()


def _bets(made: Plan) -> bool:
    """`patched()` has answered that nothing follows in the log: a refusal means that something does."""
    return any(decision.type is EventType.PATCH_RECORDED for decision in made.decisions)


def _at_fault(problem: Deadlock | Spinning) -> WorkflowError:
    stuck = "waits for nothing that can happen"
    what = stuck if isinstance(problem, Deadlock) else "never comes to rest"
    return WorkflowError(f"the workflow {what}: {'; '.join(problem.frames) or 'no frames'}")
