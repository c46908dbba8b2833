"""Steps' code that runs, and who may run it: nobody beside another under a live lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker.runtime.stepcall import StepRun
from worker.sdk.step import StepMetadata

from .store import PARTITION
from .weather import LEASE
from .worker import SimWorker

if TYPE_CHECKING:
    from .schedule import Schedule


@dataclass(slots=True)
class Execution:
    """A step's code, while it runs and afterwards."""

    worker: SimWorker
    run: str
    step: str  # short
    flight: StepRun
    attempt: int
    label: str
    over: bool = False
    ended: bool = False  # over, and its worker lived

    @property
    def unclaimed(self) -> bool:
        """It runs ahead of its claim, or has lost it."""
        return self.flight.order.epoch.mark == b""


class Executions:
    """Those of one schedule, whenever they ran."""

    def __init__(self, schedule: Schedule) -> None:
        self._s = schedule
        self.all: list[Execution] = []

    def begin(self, worker: SimWorker, metadata: StepMetadata) -> Execution:
        """A step's code starts. While it runs nobody else may, unless its owner's lease is over."""
        slot = metadata.fencing_token & 0xFFFFF
        step = f"s{int(metadata.step_id.removeprefix('step_'))}"
        label = f"{self._s.names.run(metadata.run_id)}.{step} e{slot}"
        flight = worker.host.flights[metadata.run_id, step]
        execution = Execution(worker, metadata.run_id, step, flight, metadata.attempt, label)
        self._s.note(f"{worker.name} runs {label} attempt {metadata.attempt}")
        if self._s.owned and not self._s.went_back:
            self._look_at_twins(execution)
        self.all.append(execution)
        return execution

    def end(self, execution: Execution) -> None:
        execution.over = True
        execution.ended = not execution.worker.dead

    def die_with(self, worker: SimWorker) -> None:
        for execution in self.all:
            if execution.worker is worker:
                execution.over = True

    def _look_at_twins(self, execution: Execution) -> None:
        for other in self.all:
            twins = not other.over and (other.run, other.step) == (execution.run, execution.step)
            if twins and other.worker is execution.worker and other.unclaimed:
                self._s.problems.append(f"{execution.label} runs beside {other.label}, which has no claim")
            elif twins and self._holds(other) and self._holds(execution):
                self._s.problems.append(
                    f"{execution.label} and {other.label} run at once, both under live leases"
                )

    def _holds(self, execution: Execution) -> bool:
        """Is the delivery that this execution was started under still its worker's, before its deadline?"""
        if execution.unclaimed:
            return False
        store = self._s.store
        log, slot = store.keys.run(PARTITION, execution.run)[1], f"{execution.flight.order.epoch.slot}-0"
        entry: Any = store.client.xrange(log, slot, slot)
        id, number, _ = entry[0][1][b"x"].decode().rsplit(":", 2)
        message = store.dump(logs=False).messages.get(id)
        if message is None or message.state != "f" or message.number != int(number):
            return False
        deadline = store.client.zscore(store.keys.queue(PARTITION, message.queue)[2], id)
        amnesty = int(store.client.hget(store.keys.partition(PARTITION)[0], "amnesty") or 0)
        until = max(deadline or 0, amnesty) + (0 if message.doubted else LEASE // 2)
        return message.holder == execution.worker.name and until > self._s.now
