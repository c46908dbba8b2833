"""The steps whose code a session runs, and their ends that are not recorded yet."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple

from world_redis.events import EventType
from world_redis.messages import RunContext
from world_redis.transition import Epoch, Fact, Start

from ..core.calls import StepCall
from ..core.ends import StepEnd, cancelled
from ..core.plan import step_send
from .host import Host
from .stepcall import StepOrder, StepRun


class Ending(NamedTuple):
    """An execution's end that is not recorded yet."""

    call: StepCall
    run: StepRun
    end: StepEnd
    at: float  # seconds of the ports' clock, when its code ended


@dataclass(slots=True)
class Early:
    """The one execution whose claim is on its way. Until that is there it is nobody's: not in flight here,
    its end neither recorded nor shown to a body."""

    call: StepCall
    run: StepRun
    ending: Ending | None = None


class Executions:
    """Results belong here, not to the body that asked for them: a rebuilt body finds them again."""

    def __init__(self, run_id: str, host: Host, changed: Callable[[], None]) -> None:
        self._run_id = run_id
        self._host = host
        self._changed = changed  # told when one has ended
        self.running: dict[str, StepRun] = {}  # short id → its code runs
        self.ended: dict[str, Ending] = {}  # short id → its end waits to be recorded
        self._early: Early | None = None
        self._prepared: dict[StepCall, StepRun] = {}  # their claims are on their way

    def __bool__(self) -> bool:
        return bool(self.running or self.ended)

    def __contains__(self, id: str) -> bool:
        return id in self.running or id in self.ended

    @property
    def ids(self) -> Set[str]:
        return self.running.keys() | self.ended.keys()

    @property
    def under_way(self) -> list[StepRun]:
        """Steps whose code runs, under a claim of ours or ahead of one that is on its way."""
        early = self._early
        return [*self.running.values(), *([early.run] if early is not None and early.ending is None else [])]

    @property
    def detached(self) -> dict[str, StepRun]:
        """Code of this run, of whatever session here, that lost its claim and has not come to its end."""
        if not self._host.detached:  # asked for every plan
            return {}
        keys = [key for key in self._host.detached if key[0] == self._run_id]
        return {key[1]: self._host.flights[key] for key in keys}

    # --- running ----------------------------------------------------------------------------------

    def prepare(self, calls: Sequence[StepCall]) -> None:
        """Do what can be done while their claims are on their way: none of their code runs. Done again when
        the claims are sent again."""
        self._prepared = {call: self._make(call) for call in calls}
        for run in self._prepared.values():
            self._host.steps.read_ahead(run)

    def forget_prepared(self) -> None:
        """The answer was taken in: what has not been started now was refused."""
        self._prepared = {}

    def start(self, call: StepCall, start: Start, *, now: int) -> None:
        """Run the code of a step whose claim is committed."""
        run = self._prepared.pop(call, None) or self._make(call)
        run.order.claim(start, started_at=now, fence_at=now)
        self.running[call.id] = run
        self._host.begin(run)
        self._begin(call, run)

    def _make(self, call: StepCall) -> StepRun:
        step = self._host.step(call.name)
        assert step is not None  # may_run has looked
        return self._host.steps.prepare(StepOrder(self._run_id, call.id, step, call.input, call.options))

    def _begin(self, call: StepCall, run: StepRun) -> None:
        self._host.steps.begin(run, functools.partial(self._hear, call, run), self._host.finish)

    def _hear(self, call: StepCall, run: StepRun, end: StepEnd) -> None:
        ending = Ending(call, run, end, self._host.ports.now())
        if self._early is not None and self._early.run is run:
            self._early.ending = ending
        elif not run.detached:
            self._end(ending)

    def _end(self, ending: Ending) -> None:
        id = ending.call.id
        if self.running.get(id) is ending.run:
            del self.running[id]
        self.ended[id] = ending
        self._changed()

    # --- ahead of the claim -------------------------------------------------------------------------

    def start_early(self, call: StepCall, epoch: Epoch, *, now: int, fence_at: int) -> None:
        """Run the code of a new step whose claim is about to be sent. `epoch` is a guess."""
        assert self._early is None
        run = self._make(call)
        run.order.claim(Start(epoch, 0, now), started_at=now, fence_at=fence_at)
        run.running.claimed = Future()
        self._early = Early(call, run)
        self._host.begin(run)
        # In the next turn: when the claim cannot even be sent, none of its code has run.
        asyncio.get_running_loop().call_soon(self._begin, call, run)

    def confirm(self, epoch: Epoch) -> None:
        """The claim is there: from now on this is an execution like any other."""
        early, self._early = self._early, None
        assert early is not None
        early.run.order = replace(early.run.order, epoch=epoch)
        early.run.running.claim(granted=True)
        if early.ending is None:
            self.running[early.call.id] = early.run
        else:
            self._end(early.ending)

    def detach(self) -> None:
        """The claim was refused, or may be over. The code is stopped if it can be; how it ends is nobody's
        business; it keeps slot and flight until it has really ended."""
        early, self._early = self._early, None
        assert early is not None
        early.run.detached = True
        if not early.run.over.is_set():
            self._host.detached.add((self._run_id, early.call.id))
        early.run.running.claim(granted=False)
        early.run.interrupt()

    # --- stopping ---------------------------------------------------------------------------------

    def signal(self) -> None:
        """The run was asked to cancel: steps may notice."""
        for run in self.under_way:
            run.signal()

    def finish(self) -> None:
        """The run has ended: steps may notice, and cancellable ones are stopped."""
        for run in self.under_way:
            run.finish()

    def interrupt(self) -> None:
        for run in self.under_way:
            run.interrupt()

    def cancel(self, ids: Iterable[str]) -> None:
        """Stop those of these steps that run here, in this session or from the queue: the body waits for
        their end. Others hear of it when their delivery is renewed."""
        for id in ids:
            run = self.running.get(id) or self._host.flights.get((self._run_id, id))
            if run is not None:
                run.cancel()

    # --- their ends as facts ----------------------------------------------------------------------

    def facts(self, context: RunContext, now: int, stopping: Set[str]) -> list[Fact]:
        """One per end, in the order they ended; `now` is server time in ms. An interrupted step that the
        present body has cancelled has failed; any other one runs again."""
        return [_fact(ending, context, now, stopping) for ending in self.ended.values()]


def _fact(ending: Ending, context: RunContext, now: int, stopping: Set[str]) -> Fact:
    end, order = ending.end, ending.run.order
    if end.cause == "drain" and order.id in stopping:
        end = cancelled()
    retrying = end.type is EventType.STEP_RETRYING
    return Fact(
        end.type,
        order.id,
        end.data,
        at=now,
        epoch=order.epoch,
        send=step_send(context, ending.call, now) if retrying else None,
        due_in=end.delay,
        cause=end.cause,
    )
