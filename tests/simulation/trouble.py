"""What goes wrong, and what operators do: pauses, deaths, drains, restarts, fail-overs, lost messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from world_redis.messages import RESCUE

from .store import PARTITION
from .trace import answered, asked
from .weather import LEASE
from .worker import SimWorker

if TYPE_CHECKING:
    from .schedule import Schedule

_RESTARTS = 8  # the names a server can go by are not without end


class Trouble:
    """The misfortune of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._s = schedule
        self._snapshot: Any = None
        self._jumped = -LEASE / 1000  # seconds of the loop's clock

    @property
    def remembers(self) -> bool:
        """A replica can take over."""
        return self._snapshot is not None

    def ring(self) -> None:
        worker = self._s.rng.choice(self._s.living() or self._s.workers)
        self._s.note(f"{worker.name} is rung")
        self._s.loop.call_soon(worker.intake.ring)

    def drain(self) -> None:
        able = [worker for worker in self._s.living() if not worker.host.draining]
        if len(able) > 1:
            worker = self._s.rng.choice(able)
            self._s.note(f"{worker.name} drains")
            self._s.loop.call_soon(worker.drain)
            self._s.start_worker()
            return
        leaving = [worker for worker in self._s.living() if worker.host.draining]
        if leaving and not self._s.calm:
            self._s.note(f"{leaving[0].name} has drained long enough: interrupt")
            self._s.loop.call_soon(leaving[0].intake.interrupt)

    def pause(self) -> None:
        self.stall(self._s.rng.choice(self._s.living() or self._s.workers))

    def stall(self, worker: SimWorker) -> None:
        worker.paused = self._s.rng.choice((10, 30, 80))
        self._s.note(f"{worker.name} pauses for {worker.paused} steps")

    def silence(self) -> None:
        worker = self._s.rng.choice(self._s.living() or self._s.workers)
        worker.silent = self._s.rng.choice((20, 60))
        self._s.note(f"{worker.name} does not renew for {worker.silent} steps")

    def kill_any(self) -> None:
        if self._s.living():
            self._s.kill(self._s.rng.choice(self._s.living()), "at rest")

    def restart(self) -> None:
        if self._s.store.restarts < _RESTARTS:
            self._s.store.restarts += 1
            self._s.note("the server restarts")

    def jump(self) -> None:
        """The server's clock is set ahead; nobody else's is. Not twice between two renewals: the second jump
        would take the time in which the first one's doubts are answered."""
        if self._s.loop.clock - self._jumped < LEASE / 1000:
            return
        self._jumped = self._s.loop.clock
        ahead = self._s.rng.choice((LEASE, 30 * LEASE))
        self._s.skew += ahead
        for worker in self._s.workers:
            worker.renewed_at += ahead
        self._s.store.pin(self._s.now)
        self._s.note(f"the server's clock jumps ahead by {ahead} ms")

    def remember(self) -> None:
        self._snapshot = self._s.store.snapshot()
        self._s.note("a replica has heard all until here")

    def go_back(self) -> None:
        """A fail-over that loses the tail of everything."""
        if self._s.store.restarts >= _RESTARTS:
            return
        self._s.store.go_back(self._snapshot, now=self._s.now)
        self._s.note("fail-over: the server is where the replica was")
        self._s.went_back = True
        self._s.heads.clear()
        state = self._s.store.dump(logs=False)
        self._s.runs = [run for run in self._s.runs if run.id in state.runs]
        for run in self._s.runs:
            run.resumed = len({key.partition(":")[2] for key in state.runs[run.id].received})
        if not self._s.runs:
            self._s.people.start_run()

    def rob(self) -> None:
        """The message of somebody who runs a step is lost."""
        state = self._s.store.dump(logs=False)
        owners = sorted(
            (id, owner)
            for id, found in state.runs.items()
            if not found.run.finished and RESCUE in found.out and found.out[RESCUE] in state.messages
            for owner in state.messages[found.out[RESCUE]].owners
            if owner in state.messages and state.messages[owner].state == "f"
        )
        if owners:
            run, owner = self._s.rng.choice(owners)
            message = state.messages[owner]
            _, messages, *_ = self._s.store.keys.partition(PARTITION)
            self._s.store.client.hdel(messages, owner, f"{owner}:p")
            self._s.store.client.zrem(self._s.store.keys.queue(PARTITION, message.queue)[2], owner)
            out = self._s.store.keys.run(PARTITION, run)[3]
            if state.runs[run].out.get(message.key) == owner:
                self._s.store.client.hdel(out, message.key)
            self._s.robbed.add(run)
            self._s.note(f"message {self._s.names.message(owner)} of {self._s.names.run(run)} is lost")

    def ghost(self) -> None:
        """A sending that was held up on its way arrives after its resend was answered."""
        name, call = self._s.calls.ghosts.pop(0)
        question = asked(self._s.names, call)
        reply = self._s.store.run(call)
        self._s.note(f"{name} {question} → {answered(self._s.names, call, reply)} [ghost, nobody hears]")
        self._s.calls.look()
