"""Letting go on what workers wait for, and what may befall a call on its way there or back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from world_redis.entities import MessageState
from world_redis.messages import Held
from world_redis.scripts import ScriptCall

from . import invariants
from .trace import answered, asked
from .worker import Parked

if TYPE_CHECKING:
    from .schedule import Schedule


class Calls:
    """The calls of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._s = schedule
        self.ghosts: list[tuple[str, ScriptCall]] = []  # held up on their way; who sent them
        self._in_flight: dict[str, MessageState] = {}  # as the last look saw them

    def serve(self, each: Parked, fate: str) -> None:
        """Let one parked thing go on, or not."""
        if each.reply is not None:
            self._s.parked.remove(each)
            if not each.future.done():
                self._s.note(f"{each.worker.name} reads the answer to {each.label}")
                each.future.set_result(each.reply)
            return
        if each.what == "step" or each.future.done():
            self._s.parked.remove(each)
            if not each.future.done():
                self._go_on(each)
            elif each.call is not None and self._s.rng.random() < 0.5:  # its caller was cancelled
                self._carry_out(each, "nobody hears")
            return
        if fate == "die before":
            if each.call is not None and self._s.rng.random() < 0.5:  # it is on its way all the same
                self.ghosts.append((each.worker.name, each.call))
            return self._s.kill(each.worker, "before " + each.label)
        if fate == "stall before":
            return self._s.trouble.stall(each.worker)
        reply = self._carry_out(each, fate)
        if fate == "lost":
            return
        if fate == "stall after":  # the answer is there, and nobody awake to read it
            self._s.trouble.stall(each.worker)
            each.reply = reply
            return
        if fate == "die after":
            return self._s.kill(each.worker, "after " + each.label)
        if fate == "ghost" and each.call is not None:
            self.ghosts.append((each.worker.name, each.call))
        self._s.parked.remove(each)
        each.future.set_result(reply)

    def _go_on(self, each: Parked) -> None:
        """A step's code, and perhaps others of its worker in the same turn: their ends share a call."""
        self._s.note(f"{each.worker.name} step {each.label} goes on")
        each.future.set_result(None)
        beside = [other for other in self._s.parked if other.worker is each.worker and other.what == "step"]
        if beside and self._s.rng.random() < 0.4:
            self._s.parked.remove(beside[0])
            if not beside[0].future.done():
                self._go_on(beside[0])

    def _carry_out(self, each: Parked, fate: str) -> Any:
        each.worker.server = self._s.store.server
        said = "" if fate == "reply" else f" [{fate}]"
        if each.sent:
            said += " [resent]"
        if each.call is None:
            reply = each.token()
            self._s.note(f"{each.worker.name} token {self._s.names.text(each.label)} → {reply}{said}")
        else:
            question = asked(self._s.names, each.call)
            reply = self._s.store.run(each.call, resent=each.sent)
            self._s.note(f"{each.worker.name} {question} → {answered(self._s.names, each.call, reply)}{said}")
            if each.call.script == "take":
                self._look_at_robbery(reply)
            self.look()
        each.sent = True
        return reply

    def look(self) -> None:
        """Assert what must be so after every script call."""
        state = self._s.store.dump(logs=self._s.count % 8 == 0)
        self._s.problems += invariants.at_every_step(self._s, state)
        self._in_flight = {id: message for id, message in state.messages.items() if message.state == "f"}
        self._s.judge()

    def _look_at_robbery(self, taken: list[Any]) -> None:
        """Nothing is taken from a worker that has renewed it in time, whatever the server's clock does."""
        for id, number, *_ in taken[1]:
            before = self._in_flight.get(id.decode())
            if before is None or before.number >= number:  # a number that goes back: so did the log
                continue
            for worker in self._s.living():
                if worker.name == before.holder and worker.keeps(Held(before.id, before.number)):
                    self._s.problems.append(
                        f"{self._s.names.message(before.id)} was taken from {worker.name}, which renews it"
                    )
