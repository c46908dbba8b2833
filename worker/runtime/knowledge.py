"""What a session knows of its run: the live body, and what of the log the body cannot tell.

The body stands on the log of one server. When another server answers, or the log went another way than the
body bet on, the body is dropped and built again from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from world_redis.events import FINISHED, Event, EventType, Position
from world_redis.log import Snapshot
from world_redis.messages import TIMER, News, RunContext, RunMessage
from world_redis.transition import Decision, Fact, Reply, Table, Transition

from .body import Body
from .host import Host
from .passedover import PassedOverPayloads

log = logging.getLogger("worker.session")

_NOTED = frozenset({EventType.RUN_STARTED, EventType.WAIT_CREATED, EventType.WAIT_COMPLETED})
_CREATED = EventType.STEP_CREATED  # looked up once: CPython 3.11 takes its time over members of enums
# All that a body can be told of in one go, without the events; of these only `run_started` is noted here.
_CONFIRMED = frozenset(
    {
        EventType.RUN_STARTED,
        EventType.STEP_CREATED,
        EventType.STEP_STARTED,
        EventType.STEP_COMPLETED,
        EventType.STEP_FAILED,
    }
)
OVER = FINISHED | {"parked", "absent"}  # nothing to plan


class Knowledge:
    def __init__(self, run_id: str, host: Host) -> None:
        self._run_id = run_id
        self._host = host
        self.context: RunContext | None = None
        self.body: Body | None = None
        self.status = ""  # of the run, as last heard; "parked" and "absent" too; "": not known
        self.started = False  # run_started is in the log
        self.seen = 0  # highest slot read
        self.waits: dict[str, int] = {}  # open recorded waits → due ms
        self.timer_armed = False
        self.acted: set[str] = set()  # dropped calls that were withdrawn
        self.table: Table | None = None
        self.need_table = False
        self.news: News | None = None  # of the wake that joined last, until a body was advanced on it
        self._passed_over = PassedOverPayloads(run_id, host)
        self._drifts = 0  # of the body, counted so far
        self._server = ""  # whose log the body stands on
        self._now, self._heard_at = 0, 0.0  # server time last heard (ms), and when

    @property
    def position(self) -> Position | None:
        return None if self.body is None else self.body.position

    @property
    def over(self) -> bool:
        return self.status in OVER

    # --- time -------------------------------------------------------------------------------------

    def hear(self, now: int) -> None:
        """The store said what time it is (ms). An answer that was long on its way puts us behind: that is
        safe, a wait thought early is armed again; a clock ahead of the store's would ask in vain."""
        if now:
            self._now, self._heard_at = now, self._host.ports.now()

    @property
    def heard(self) -> int:
        """Server time last heard (ms): never ahead of the server's, whatever our clock does."""
        return self._now

    def now(self) -> int:
        """Server time as far as known: ms last heard plus what has passed here since."""
        return self._now + int((self._host.ports.now() - self._heard_at) * 1000)

    @property
    def out_of_time(self) -> bool:
        """Is the run past its deadline?"""
        context = self.context
        if context is None or not context.timeout:
            return False
        return self.now() >= context.created_at + context.timeout

    def listened_waits(self) -> dict[str, int]:
        """Open recorded waits that the body still waits for, with their due times (ms)."""
        body = self.body
        if body is None or not self.waits:
            return {}
        dropped = body.dropped
        return {id: at for id, at in self.waits.items() if id in body.open and id not in dropped}

    def due_waits(self) -> list[Fact]:
        """Open waits whose time has come, the earliest first."""
        if not self.waits:
            return []
        now = self.now()
        due = [(at, int(id[1:]), id) for id, at in self.listened_waits().items() if at <= now]
        return [Fact(EventType.WAIT_COMPLETED, id, at=now) for _, _, id in sorted(due)]

    # --- building ---------------------------------------------------------------------------------

    def stands(self) -> bool:
        """Is there a body, on the log of the server spoken to?"""
        return self.body is not None and not self.moved and not self.body.misled

    @property
    def moved(self) -> bool:
        """Another server answers than the one this was learned from: it may not have survived."""
        return self._server != self._host.ports.server()

    async def learn_run(self, first: RunMessage | None) -> tuple[bytes, bytes, list[Event]] | None:
        """Find out what the run is: from its first message, which needs no read, else from the store.
        Answers (seed, input, events), or None when the run is over, parked or absent."""
        self.drop_body()
        self._meet_server()
        if first is not None:
            self.context = first.context
            created = Event(1, EventType.RUN_CREATED, "", first.context.created_at, b"", first.input, "")
            return first.seed, first.input, [created]
        return await self._read()

    async def _read(self) -> tuple[bytes, bytes, list[Event]] | None:
        """The whole log. A read that spans a reconnect starts over: its pages may not belong together."""
        self.need_table = False  # what joins while we read may ask again
        while True:
            self._meet_server()
            page, events = await self._read_pages()
            if not self.moved:
                break
        self.status = _status_of(page)
        if page is None or self.over:
            return None
        self.hear(page.now)
        self._passed_over.hear(page.record)
        self.table = page.table
        self.context = _context_of(page.record)
        return page.record["seed"], events[0].data, events

    def _meet_server(self) -> None:
        if self.moved:
            self._passed_over.forget()
        self._server = self._host.ports.server()

    async def _read_pages(self) -> tuple[Snapshot | None, list[Event]]:
        events: list[Event] = []
        while True:
            seen = events[-1].slot if events else 0
            page = await self._host.log.read(self._run_id, seen=seen, table=True)
            if page is None:
                return None, events
            events += page.events
            if not page.more:
                return page, events

    def build(self, seed: bytes, given: bytes, events: Sequence[Event]) -> None:
        """A body at the end of `events`. The workflow must be registered."""
        assert self.context is not None
        workflow = self._host.workflow(self.context.workflow, self.context.version)
        assert workflow is not None
        self.body = Body(workflow, self.context, self._run_id, seed, self.context.created_at, given)
        if len(events) > 1:
            self._host.telemetry.replays.inc()
        self.feed(events)

    def drop_body(self) -> None:
        body, self.body = self.body, None
        self.started, self.seen, self.waits, self.acted = False, 0, {}, set()
        self.table, self._drifts = None, 0
        if body is not None:
            body.close()

    # --- going on ---------------------------------------------------------------------------------

    def feed(self, events: Sequence[Event]) -> None:
        """Give the body the next events of the log."""
        for event in events:
            self.seen = max(self.seen, event.slot)
            if event.type in _NOTED:
                self._note(event)
        body = self.body
        if body is not None and body.problem is None:
            body.learn(events)
            body.run()
            self._count_drifts(body)

    def take_in(self, reply: Reply, transition: Transition) -> None:
        """Give the body what the log holds after `transition`."""
        if not (reply.as_sent and self._confirm(reply, transition)):
            self.feed(reply.events)

    def _confirm(self, reply: Reply, transition: Transition) -> bool:
        """Tell the body in one go that the log holds what was sent, without making the events. False: it has
        to be told event by event. From step to step it need not be."""
        body, decisions = self.body, transition.decisions
        parts: list[Fact | Decision] = [*transition.facts, *decisions]
        types = {part.type for part in parts}
        if body is None or not types or not types <= _CONFIRMED:
            return False
        created = [decision.id for decision in decisions if decision.type is _CREATED]
        if not body.confirm(len(transition.facts), created, reply.head, reply.position):
            return False
        self.seen = reply.head
        self.started = True  # nothing is written before run_started
        return True

    def _note(self, event: Event) -> None:
        match event.type:
            case EventType.RUN_STARTED:
                self.started = True
            case EventType.WAIT_CREATED:
                self.waits[event.id] = int(event.extra)
                self.timer_armed = True
            case EventType.WAIT_COMPLETED:
                self.waits.pop(event.id, None)

    def _count_drifts(self, body: Body) -> None:
        """Arguments that differ from the recorded ones: the recorded answer stands, people should know."""
        if len(body.drifts) == self._drifts:
            return
        for drift in body.drifts[self._drifts :]:
            self._host.telemetry.input_drifts.inc()
            about = {"run_id": self._run_id, "step": drift.id, "slot": drift.slot}
            log.warning("arguments of %s differ from the recorded ones", drift.name, extra=about)
        self._drifts = len(body.drifts)

    async def tell(self) -> None:
        """Log and count the payloads that the body has passed over, if nobody has. To be called before a
        transition that may settle what the body has seen."""
        if self.body is not None:
            await self._passed_over.tell(self.body.take_passed_over())

    def tell_ahead(self) -> None:
        """The same, of a body that was just advanced: nobody has settled what it saw, so nothing is read."""
        if self.body is not None:
            self._passed_over.tell_unsettled(self.body.take_passed_over())

    def withdraw(self, keys: Sequence[str]) -> None:
        """The messages with these keys were withdrawn: those of dropped calls, by short id, or the timer."""
        self.acted.update(keys)
        if self.body is not None:
            self.body.withdrawn([key for key in keys if key != TIMER])
        if TIMER in keys:
            self.timer_armed = False

    async def feed_rest(self) -> None:
        """The pages an answer had no room for."""
        more = self.body is not None
        while more:
            page = await self._host.log.read(self._run_id, seen=self.seen, record=False)
            if page is None:
                return
            self.feed(page.events)
            more = page.more

    def advance(self, facts: Sequence[Fact]) -> None:
        """Bet that these facts are the run's next decisive events."""
        body = self.body
        assert body is not None
        events = [Event(0, fact.type, fact.id, fact.at, b"", fact.data, "") for fact in facts]
        body.advance(events)

    @property
    def has_next(self) -> bool:
        """Is the news the decisive event that follows the last one the body has seen?"""
        news, body = self.news, self.body
        return news is not None and body is not None and news.position.decided == body.position.decided + 1

    @property
    def betting(self) -> bool:
        return self.body is not None and self.body.betting

    def advance_on_news(self) -> Position:
        """Bet that the news is in the log; answers the position that the run has then."""
        news, self.news, body = self.news, None, self.body
        assert news is not None and body is not None
        body.advance([news.event])
        return news.position


def _status_of(page: Snapshot | None) -> str:
    if page is None:
        return "absent"
    return "parked" if page.record.get("parked") else page.status


def _context_of(record: dict[str, bytes]) -> RunContext:
    def text(name: str) -> str:
        return record[name].decode()

    return RunContext(
        workflow=text("workflow"),
        version=int(record["version"]),
        spec=int(record["spec"]),
        queue=text("queue"),
        created_at=int(record["created"]),
        root_run_id=text("root"),
        parent_run_id=text("parent"),
        parent_step=text("parent_step"),
        deployment=text("deployment"),
        traceparent=text("traceparent"),
        timeout=int(record.get("timeout") or 0),
        start_key=(record.get("start_key") or b"").decode(),
    )
