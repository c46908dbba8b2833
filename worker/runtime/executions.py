"""The step bodies a session runs, and their ends that are not recorded yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from world_redis.events import EventType
from world_redis.messages import RunContext
from world_redis.transition import Epoch, Fact

from ..core.calls import StepCall
from ..core.ends import StepEnd, failed
from ..core.plan import step_send
from ..core.records import CANCELLED
from .host import Host
from .stepcall import StepOrder, StepRun


@dataclass(frozen=True, slots=True)
class Ending:
    """An execution's end that is not recorded yet."""

    call: StepCall
    run: StepRun
    end: StepEnd
    at: float  # seconds of the ports' clock, when its code ended


class Executions:
    """Results belong here, not to the body that asked for them: a rebuilt body finds them again."""

    def __init__(self, run_id: str, host: Host, changed: Callable[[], None]) -> None:
        self._run_id = run_id
        self._host = host
        self._changed = changed  # told when one has ended
        self.running: dict[str, StepRun] = {}  # short id → its code runs
        self.ended: dict[str, Ending] = {}  # short id → its end waits to be recorded

    def __bool__(self) -> bool:
        return bool(self.running or self.ended)

    @property
    def ids(self) -> Set[str]:
        return self.running.keys() | self.ended.keys()

    # --- running ----------------------------------------------------------------------------------

    def start(self, call: StepCall, epoch: Epoch, *, errors: int, now: int, first: int) -> None:
        """Run the code of a step whose claim is committed."""
        step = self._host.step(call.name)
        assert step is not None  # may_run has looked
        order = StepOrder(
            run_id=self._run_id,
            id=call.id,
            step=step,
            input=call.input,
            options=call.options,
            epoch=epoch,
            errors=errors,
            started_at=now,
            first_started=first or now,
        )
        run = self._host.steps.prepare(order)
        self.running[call.id] = run
        self._host.begin(run)
        self._host.ports.spawn(self._run(call, run), f"step {call.name} {self._run_id} {call.id}")

    async def _run(self, call: StepCall, run: StepRun) -> None:
        end = await self._host.steps.execute(run)
        if self.running.get(call.id) is run:
            del self.running[call.id]
        self.ended[call.id] = Ending(call, run, end, self._host.ports.now())
        self._changed()
        await run.over.wait()  # a timed-out thread keeps its slot until it has really ended
        self._host.finish(run)

    # --- stopping ---------------------------------------------------------------------------------

    def signal(self) -> None:
        """The run was asked to cancel: steps may notice."""
        for run in self.running.values():
            run.signal()

    def finish(self) -> None:
        """The run has ended: steps may notice, and cancellable ones are stopped."""
        for run in self.running.values():
            run.finish()

    def interrupt(self) -> None:
        for run in self.running.values():
            run.interrupt()

    def cancel(self, ids: Iterable[str]) -> None:
        """Stop those of these steps that run here, in this session or from the queue: the body waits for
        their end. Others hear of it when their delivery is renewed."""
        for id in ids:
            run = self.running.get(id) or self._host.flights.get((self._run_id, id))
            if run is not None:
                run.cancel()

    # --- their ends as facts ----------------------------------------------------------------------

    def facts(self, context: RunContext, now: int, cancelled: Set[str]) -> list[Fact]:
        """One per end, in the order they ended; `now` is server time in ms. An interrupted step that the
        present body has cancelled has failed; any other one runs again."""
        return [_fact(ending, context, now, cancelled) for ending in self.ended.values()]


def _fact(ending: Ending, context: RunContext, now: int, cancelled: Set[str]) -> Fact:
    end, order = ending.end, ending.run.order
    if end.cause == "drain" and order.id in cancelled:
        end = failed(CANCELLED, b"", "cancelled")
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
