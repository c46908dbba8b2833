"""What people and clients do to runs, whenever the schedule lets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.core.records import CANCELLED, CancelRequested, Failed, HookReceived, pack
from worker.core.spec import SPEC
from world_redis.events import Answer
from world_redis.hooks import HookAddress, Hooks
from world_redis.ids import new_mark
from world_redis.messages import RunContext, RunMessage
from world_redis.runs import Runs

from .cast import PARTS, Part, wf
from .store import at_once
from .weather import NEVER

if TYPE_CHECKING:
    from .schedule import Schedule

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(slots=True)
class SimRun:
    id: str
    part: Part
    cancelled: bool = False
    terminated: bool = False
    orphaned: bool = False  # a child of it was cancelled or terminated from outside
    resumed: int = 0


class People:
    """The outside of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._s = schedule

    def start_run(self) -> None:
        part = self._s.rng.choice(PARTS)
        text = "".join(self._s.entropy.choice(_LETTERS) for _ in range(23))
        run = SimRun(f"wrun_0{text}00", part)
        target = part.workflow
        input = target.signature.encode_arguments(part.args, {}, with_defaults=True)
        context = RunContext(target.name, target.version, SPEC, "default", self._s.now, run.id)
        message = RunMessage(context, self._s.entropy.randbytes(16), input, new_mark())
        at_once(Runs(self._s.store).start(run.id, message, input))
        self._s.runs.append(run)
        self._s.note(f"run {self._s.names.run(run.id)} starts: {target.name}{part.args}")
        self._s.calls.look()

    def _open_hooks(self) -> Iterator[tuple[SimRun, str, str]]:
        state = self._s.store.dump(logs=False)
        for run in self._s.runs:
            for hook, token in sorted(state.runs[run.id].hooks.items()):
                yield run, hook, token

    def resume_any(self) -> None:
        hooks = list(self._open_hooks())
        if hooks:
            self._resume(*self._s.rng.choice(hooks))

    def resume_missing(self) -> bool:
        for run, hook, token in self._open_hooks():
            if run.resumed < run.part.payloads:
                self._resume(run, hook, token)
                return True
        return False

    def _resume(self, run: SimRun, hook: str, token: str) -> None:
        if run.resumed < run.part.payloads:
            self._send_payload(run, hook, token, run.resumed + 1)
            run.resumed += 1

    def repeat_resume(self) -> None:
        """A client that was not sure."""
        hooks = [each for each in self._open_hooks() if each[0].resumed]
        if hooks:
            run, hook, token = self._s.rng.choice(hooks)
            self._send_payload(run, hook, token, self._s.rng.randrange(run.resumed) + 1)

    def _send_payload(self, run: SimRun, hook: str, token: str, number: int) -> None:
        data = pack(HookReceived(wf.codec.encode({"text": number}), f"resume-{number}"))
        address = HookAddress(run.id, hook)
        answer, slot = at_once(Hooks(self._s.store).resume(address, token, f"resume-{number}", data))
        self._s.note(f"resume {self._s.names.run(run.id)}.{hook} with {number} → {answer} {slot}")
        self._s.calls.look()

    def cancel(self) -> None:
        id, run = self._any_run()
        answer = at_once(Runs(self._s.store).cancel(id, pack(CancelRequested("asked"))))
        if answer is Answer.OK:
            run.cancelled |= id == run.id
            run.orphaned |= id != run.id
        self._s.note(f"cancel {self._s.names.run(id)} → {answer}")
        self._s.calls.look()

    def terminate(self) -> None:
        id, run = self._any_run()
        data = pack(Failed(CANCELLED, b""))
        work = Runs(self._s.store).terminate(id, data, parent_data=data, retention_ms=NEVER)
        if (answer := at_once(work)) is Answer.OK:
            run.terminated |= id == run.id
            run.orphaned |= id != run.id
        self._s.note(f"terminate {self._s.names.run(id)} → {answer}")
        self._s.calls.look()

    def _any_run(self) -> tuple[str, SimRun]:
        """A run's id, maybe a child's, and the run it belongs to."""
        state = self._s.store.dump(logs=False)
        known = {run.id: run for run in self._s.runs}
        return self._s.rng.choice([(id, known[found.run.root]) for id, found in sorted(state.runs.items())])

    def let_go(self) -> bool:
        """A parked run is tried again: by a build that has not refused it, or because somebody says so."""
        parked = sorted(self._s.store.dump(logs=False).parked)
        if not parked:
            return False
        run = self._s.rng.choice(parked)
        build = "" if self._s.settling else self._s.rng.choice(("", "new"))
        answer = at_once(Runs(self._s.store).unpark(run, build=build))
        self._s.note(f"{build or 'somebody'} lets {self._s.names.run(run)} go → {answer}")
        self._s.calls.look()
        return True
