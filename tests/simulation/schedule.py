"""One schedule: a seed decides what happens next, whenever nothing else can run.

First a storm: calls are carried out in any order, replies get lost, workers die, pause, drain and come
back, leases lapse, the server restarts, people resume, cancel and terminate. Then calm: what is left must
come to its end with healthy workers alone. After every script call the store's invariants are asserted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from worker.runtime.host import Limits

from . import invariants
from .calls import Calls
from .cast import OldBuild, wf
from .executions import Executions
from .loop import VirtualLoop
from .people import People, SimRun
from .quiet import caught_logs, seeded_ids
from .store import QUEUES, Store
from .trace import Names
from .trouble import Trouble
from .weather import EPOCH, LEASE, NEVER, Weather
from .worker import Parked, SimWorker

CALM_STEPS = 1_200  # after which what is not over never will be
_SHOWN = 60  # lines of the trace that a failure shows


class Broken(AssertionError):
    """Something that must never be so. Says the seed and what had happened."""

    def __init__(self, seed: int, problems: list[str], trace: list[str]) -> None:
        self.seed, self.problems, self.trace = seed, problems, trace
        shown = [f"seed {seed}: {problems[0]}", *problems[1:], f"--- the last of {len(trace)} lines ---"]
        super().__init__("\n".join([*shown, *trace[-_SHOWN:]]))


@dataclass
class Schedule:
    """See the module."""

    seed: int
    store: Store
    verbose: Callable[[str], None] | None = None
    trace: list[str] = field(default_factory=list)
    workers: list[SimWorker] = field(default_factory=list)
    runs: list[SimRun] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    heads: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    robbed: set[str] = field(default_factory=set)  # runs of which a message was deleted

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.entropy = Random(self.seed ^ 0x5EED)
        self.weather = Weather.draw(self.rng)
        self.names = Names()
        self.loop = VirtualLoop(self.step)
        self.count = 0
        self.settling = False
        self.problems: list[str] = []
        self._made = 0
        self.skew = 0  # ms by which the server's clock has jumped ahead
        self.calls = Calls(self)
        self.executions = Executions(self)
        self.people = People(self)
        self.trouble = Trouble(self)
        self.went_back = False
        self._over: asyncio.Future[None] = self.loop.create_future()
        self.store.reset(lease=LEASE, now=EPOCH, switches=self.weather.switches)

    # --- the whole ------------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        return self.weather.calm

    @property
    def owned(self) -> bool:
        """Ownership is on, so that no step runs beside itself."""
        switches = self.weather.switches
        return switches.inline_ownership and switches.queue_backstop

    def run(self) -> None:
        """Raises Broken."""
        # Where runs park after a few crashes, the message of one that has crashed so often is dead.
        expected = ("dead letter",) if self.weather.tight else ()
        with seeded_ids(self.entropy), caught_logs(self.problems, expected):
            self.note(f"seed {self.seed}: {self.weather}")
            self.people.start_run()
            for _ in range(self.weather.workers):
                self.start_worker()
            try:
                self.loop.run_until_complete(self._life())
            except Broken:
                raise
            except Exception as error:
                raise Broken(self.seed, [f"the simulation itself: {error!r}"], self.trace) from error
            finally:
                self._clear()

    async def _life(self) -> None:
        await self._over
        state = self.store.dump(logs=True)
        self.problems += invariants.at_the_end(self, state)
        self.problems += await invariants.replays(self, state)
        self.judge()

    def _clear(self) -> None:
        """Nothing of a schedule outlives it."""
        self.loop.stop_asking()
        self.parked.clear()
        for worker in self.workers:
            if not worker.dead:
                worker.kill()
        self.loop.run_until_complete(self._unwound())
        self.loop.close()

    async def _unwound(self) -> None:
        for job in self.loop.unwinding:
            await job
        me = asyncio.current_task()
        rest = [task for task in self.loop.owners if task is not me]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def note(self, line: str) -> None:
        text = f"{self.count:4} {self.now - EPOCH:6} {line}"
        self.trace.append(text)
        if self.verbose is not None:
            self.verbose(text)

    def judge(self) -> None:
        """Raises Broken when there is a problem."""
        self.problems += self.loop.errors
        if self.problems:
            named = [self.names.text(problem) for problem in self.problems]
            raise Broken(self.seed, named, self.trace)

    # --- time -----------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """ms, by the server's clock"""
        return EPOCH + self.skew + round(self.loop.clock * 1000)

    def _advance(self) -> None:
        """To the next moment at which anything falls due, or a little; never past a healthy renewal."""
        known = [due for due in self.store.due_times() if due > self.now]
        timer = self.loop.next_timer()
        if timer is not None:
            known.append(max(self.now + 1, EPOCH + self.skew + math.ceil(timer * 1000)))
        known.sort()
        if self.settling or not known or self.rng.random() < 0.7:
            target = known[0] if known else self.now + 100
        else:
            target = self.rng.choice((*known[:4], self.now + self.rng.randrange(1, LEASE)))
        target = min(target, self.now + LEASE // 3)
        for worker in self.living():
            if target - worker.renewed_at >= LEASE // 3 and not worker.paused and not worker.silent:
                worker.renew()
        self.loop.clock = (target - EPOCH - self.skew) / 1000
        self.store.pin(self.now)
        self.note("time passes")

    # --- what happens next ----------------------------------------------------------------------

    def step(self) -> None:
        """Called when nothing can run until something happens."""
        if self._over.done():
            return
        self.judge()
        self.count += 1
        if not self.settling and (self.count > self.weather.steps or self._is_spent()):
            self._settle()
        if self.settling and self._is_over():
            self._over.set_result(None)
            return
        if self.count > self.weather.steps + CALM_STEPS:
            state = self.store.dump(logs=True)
            self.problems.append(f"not over after {self.count} steps")
            self.problems += invariants.at_the_end(self, state)
            self.judge()
        self._tick_troubles()
        if self.settling:
            self._next_in_calm()
        else:
            self._next_in_storm()

    def _next_in_storm(self) -> None:
        rng, weather = self.rng, self.weather
        if rng.random() < weather.acts:
            rng.choice(self._acts())()
            return
        ready = self._ready()
        if ready and rng.random() >= weather.hurry:
            busy = [each for each in ready if each.label != "take"]
            if busy and rng.random() < 0.6:
                ready = busy
            return self.calls.serve(rng.choice(ready), self._fate())
        self._advance()

    def _next_in_calm(self) -> None:
        if not self.living():
            return self.start_worker(whole=True)
        ready = self._ready()
        if ready:
            return self.calls.serve(self.rng.choice(ready), "reply")
        if self.people.let_go() or self.people.resume_missing():
            return
        self._advance()

    def _ready(self) -> list[Parked]:
        self.parked = [each for each in self.parked if not each.worker.dead]
        return [each for each in self.parked if not each.worker.paused]

    def _fate(self) -> str:
        if self.rng.random() >= self.weather.fault:
            return "reply"
        return self.rng.choice(
            ("lost", "lost", "ghost", "die before", "die after", "die after", "stall before", "stall after")
        )

    # --- workers --------------------------------------------------------------------------------

    def living(self) -> list[SimWorker]:
        return [worker for worker in self.workers if not worker.dead and not worker.gone]

    def start_worker(self, *, whole: bool = False) -> None:
        rng = self.rng
        self._made += 1
        limits = Limits(
            max_inline_steps=rng.choice((1, 2, 3)),
            live_runs=self.weather.live_runs,
            max_step_crashes=2 if self.weather.tight else NEVER,
            max_deliveries=6 if self.weather.tight else NEVER,
            park_after=5_000 if self.weather.tight else NEVER,
            inline_ownership=self.weather.switches.inline_ownership,
            queue_backstop=self.weather.switches.queue_backstop,
            async_step_completed=self.weather.deferred,
            strict=True,
        )
        both = whole or rng.random() < 0.7 or not self._serves("side")
        old = self.weather.deploys and not whole and rng.random() < 0.5
        worker = SimWorker(
            self,
            f"w{self._made}",
            OldBuild() if old else wf,
            queues=list(QUEUES) if both else ["default"],
            concurrency=rng.choice((1, 2, 3)),
            limits=limits,
            drift=rng.choice((1.0, 1.0, 0.97, 1.03)),
            build="old" if old else "new",
        )
        served, slots = "+".join(worker.host.queues), worker.host.slots.size
        about = f"{served} inline {limits.max_inline_steps} slots {slots} drift {worker.drift}"
        self.note(f"{worker.name} starts: {worker.build} build {about}")
        self.workers.append(worker)
        worker.start()

    def _serves(self, queue: str) -> bool:
        return any(queue in worker.host.queues for worker in self.living())

    def kill(self, worker: SimWorker, when: str) -> None:
        self.note(f"{worker.name} dies {when}")
        self.executions.die_with(worker)
        worker.kill()
        if not self.living():
            self.start_worker()

    def _tick_troubles(self) -> None:
        for worker in self.workers:
            worker.paused = max(0, worker.paused - 1)
            worker.silent = max(0, worker.silent - 1)

    # --- acts from outside ----------------------------------------------------------------------

    def _acts(self) -> list[Callable[[], object]]:
        """What may happen now, as often as it is likely."""
        people, trouble, weather = self.people, self.trouble, self.weather
        acts: list[Callable[[], object]] = [people.resume_any] * 3
        acts += [people.repeat_resume, trouble.drain, trouble.ring, trouble.ring]
        acts += [people.cancel] * weather.asking
        if weather.asking and self.rng.random() < 0.3:
            acts.append(people.terminate)
        if len(self.runs) < weather.runs:
            acts += [people.start_run] * 4
        if len(self.living()) < 3:
            acts.append(self.start_worker)
        if weather.tight:
            acts += [people.let_go] * 2
        return acts if self.calm else [*acts, *self._troubles()]

    def _troubles(self) -> list[Callable[[], object]]:
        trouble = self.trouble
        acts = [trouble.pause, trouble.silence, trouble.kill_any, trouble.restart, trouble.rob, trouble.jump]
        if self.weather.forgetful:
            acts += [trouble.remember] * 4
            acts += [trouble.go_back] * (2 if trouble.remembers else 0)
        if self.calls.ghosts:
            acts += [trouble.ghost] * 3
        return list(acts)

    # --- the calm after the storm ---------------------------------------------------------------

    def _settle(self) -> None:
        self.note("the storm is over")
        self.settling = True
        for worker in self.workers:
            worker.paused = worker.silent = 0
        while len(self.runs) < self.weather.runs:
            self.people.start_run()
        for worker in self.living():
            if worker.build == "old":
                self.note(f"{worker.name} drains")
                self.loop.call_soon(worker.drain)
        able = [w for w in self.living() if not w.host.draining and w.build == "new"]
        if not able or not any("side" in worker.host.queues for worker in able):
            self.start_worker(whole=True)

    def _is_spent(self) -> bool:
        """Nothing is left for the storm to blow at."""
        if self.count % 10 or len(self.runs) < self.weather.runs:
            return False
        return self._is_over()

    def _is_over(self) -> bool:
        if any(each.what != "call" or each.label != "take" for each in self.parked if not each.worker.dead):
            return False
        if not all(worker.intake.empty and not worker.host.detached for worker in self.living()):
            return False
        state = self.store.dump(logs=False)
        return not state.messages and all(found.run.finished for found in state.runs.values())
