"""Two workers, one operator and bad luck, in every order a seed can think of.

The workers behave: what they settle leaves a way forward. They die, come back, send twice, read and then act
on what is no longer so. After every call the whole partition must be as `liveness.check` wants it; in the end
a last worker must be able to bring every run home.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.lua.kit import LEASE, RETENTION, A, E, StoreKit
from world_redis.events import FINISHED, NOT_HELD
from world_redis.ids import new_mark
from world_redis.log import Snapshot
from world_redis.messages import Delivery, Kind
from world_redis.transition import (
    Decision,
    Epoch,
    Fact,
    OpenHook,
    OpenStep,
    OpenWait,
    Reply,
    Send,
    Transition,
)

STEPS = 300
OVER = NOT_HELD | {A.NOT_FOUND, A.EXPIRED}


@dataclass
class Work:
    """A run message held by a worker: a session that looks, then acts on what it saw."""

    delivery: Delivery
    consumer: str
    seq: int = 0
    running: dict[str, Epoch] = field(default_factory=dict)
    saw: Snapshot | None = None
    last: Transition | None = None


@dataclass
class Body:
    """A queued step's message held by a worker."""

    delivery: Delivery
    consumer: str
    epoch: Epoch | None = None


class Model:
    def __init__(self, kit: StoreKit, seed: int) -> None:
        self.kit, self.dice = kit, random.Random(seed)
        self.runs: list[str] = []
        self.works: list[Work] = []
        self.bodies: list[Body] = []
        self.resumes = 0

    async def step(self) -> str:
        """One call, or a death."""
        moves: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (8, self.take),
            (12, self.look),
            (14, self.act),
            (8, self.body),
            (3, self.resume),
            (3, self.time),
            (2, self.resend),
            (2, self.renew),
            (2, self.die),
            (1, self.give_back),
            (1, self.refuse),
            (1, self.unpark),
            (1, self.operator),
            (1, self.bury),
            (1, self.server),
        ]
        weights = [weight for weight, _ in moves]
        move = self.dice.choices([move for _, move in moves], weights)[0]
        if len([run for run in self.runs if run]) < 2:
            move = self.start
        await move()
        return move.__name__

    # -- moves -----------------------------------------------------------------------------------

    async def start(self) -> None:
        self.runs.append(await self.kit.start(due_in=self.dice.choice([0, 0, 500])))

    async def take(self) -> None:
        consumer = self.dice.choice(["c1", "c2"])
        empty = self.dice.random() < 0.5
        for delivery in await self.kit.take(
            consumer, runs=self.dice.randint(0, 2), steps=self.dice.randint(0, 2), empty=empty
        ):
            if delivery.kind == Kind.STEP:
                self.bodies.append(Body(delivery, consumer))
            else:
                self.works.append(Work(delivery, consumer))

    async def look(self) -> None:
        if self.works:
            work = self.dice.choice(self.works)
            work.saw = await self.kit.log(work.consumer).read(work.delivery.run_id, table=True)

    async def act(self) -> None:
        ready = [work for work in self.works if work.saw is not None]
        if not ready:
            return
        work = self.dice.choice(ready)
        parts = self._plan(work)
        await self._send(work, parts)

    async def body(self) -> None:
        if not self.bodies:
            return
        body = self.dice.choice(self.bodies)
        if body.epoch is None:
            await self._claim(body)
            return
        self.bodies.remove(body)
        facts = [self._end(body.delivery.key, body.epoch)]
        transition = Transition(
            body.delivery.run_id,
            new_mark(),
            body.delivery.held,
            2,
            facts=facts,
            settles=[body.delivery.held],
        )
        for _ in range(self.dice.choice([1, 1, 2])):
            await self.kit.log(body.consumer).append(transition, queue="default")

    async def _claim(self, body: Body) -> None:
        """Together with what else its worker may claim of the run."""
        together = [
            each
            for each in self.bodies
            if each.epoch is None
            and (each.consumer, each.delivery.run_id) == (body.consumer, body.delivery.run_id)
        ]
        claims = await self.kit.queue(body.consumer).claim([each.delivery for each in together])
        for each, claim in zip(together, claims, strict=True):
            each.epoch = claim.epoch
            if claim.answer is not A.OK:
                self.bodies.remove(each)

    async def resume(self) -> None:
        self.resumes += self.dice.choice([0, 1])
        run = self.dice.choice(self.runs)
        await self.kit.resume(run, f"r{self.resumes}", self.dice.choice(["h1", "h2"]))

    async def time(self) -> None:
        await self.kit.clock.advance(self.dice.choice([1, 400, 5_000, LEASE, LEASE + 1]))

    async def resend(self) -> None:
        sent = [work for work in self.works if work.last is not None]
        if sent:
            work = self.dice.choice(sent)
            assert work.last is not None
            await self.kit.log(work.consumer).append(work.last, queue="default")

    async def renew(self) -> None:
        for consumer in ("c1", "c2"):
            everything: list[Work | Body] = [*self.works, *self.bodies]
            mine = [one.delivery.held for one in everything if one.consumer == consumer]
            await self.kit.queue(consumer).renew(0, mine)

    async def die(self) -> None:
        consumer = self.dice.choice(["c1", "c2"])
        self.works = [work for work in self.works if work.consumer != consumer]
        self.bodies = [body for body in self.bodies if body.consumer != consumer]

    async def give_back(self) -> None:
        idle: list[Work | Body] = [work for work in self.works if not work.running]
        idle += [body for body in self.bodies if body.epoch is None]
        if idle:
            one = self.dice.choice(idle)
            await self.kit.queue(one.consumer).defer(
                0, [one.delivery.held], due_in=self.dice.choice([0, 700, 40_000])
            )
            self._forget(one)

    async def refuse(self) -> None:
        idle = [work for work in self.works if not work.running]
        if idle:
            work = self.dice.choice(idle)
            await self.kit.queue(work.consumer).refuse(
                work.delivery.run_id,
                [work.delivery.held],
                reason="UNKNOWN",
                detail="",
                build=work.consumer,
                park_after=self.dice.choice([0, 10_000]),
                back_in=500,
            )
            self._forget(work)

    async def unpark(self) -> None:
        for run in self.runs:
            await self.kit.runs.unpark(run)

    async def operator(self) -> None:
        run = self.dice.choice(self.runs)
        if self.dice.random() < 0.6:
            await self.kit.runs.cancel(run, b"")
        else:
            await self.kit.runs.terminate(run, b"", retention_ms=RETENTION)
            self.runs.remove(run)

    async def bury(self) -> None:
        fresh: list[Work | Body] = [body for body in self.bodies if body.epoch is None]
        fresh += [work for work in self.works if not work.running]
        if fresh:
            one = self.dice.choice(fresh)
            await self.kit.queue(one.consumer).bury(one.delivery, reason="BAD", detail="")
            self._forget(one)

    async def server(self) -> None:
        record = self.kit.world.keys.partition(0)[0]
        await self.kit.world.command("HSET", record, "server", "0" * 40)

    def _forget(self, one: Work | Body) -> None:
        if isinstance(one, Work):
            self.works.remove(one)
        else:
            self.bodies.remove(one)

    # -- what a session decides ----------------------------------------------------------------------

    def _plan(self, work: Work) -> dict[str, Any]:
        saw = work.saw
        assert saw is not None
        if saw.table is None or saw.status in FINISHED:
            return {"settles": [work.delivery.held]}
        choices = [self._new, self._ends, self._settle, self._settle]
        parts = self.dice.choice(choices)(work, saw)
        for key, more in self._repairs(work, saw).items():
            parts[key] = [*parts.get(key, []), *more]
        return parts

    def _new(self, work: Work, saw: Snapshot) -> dict[str, Any]:
        used = {kind: int(saw.record.get(kind, 0)) + 1 for kind in "swh"}
        step, wait, hook = f"s{used['s']}", f"w{used['w']}", f"h{used['h']}"
        due = self.dice.choice([100, 2_000, 60_000])
        return self.dice.choice(
            [
                {"decisions": [Decision(E.RUN_STARTED)]},
                {
                    "decisions": [
                        Decision(E.STEP_CREATED, step),
                        Decision(E.STEP_STARTED, step, mode="inline"),
                    ]
                },
                {
                    "decisions": [Decision(E.STEP_CREATED, step)],
                    "sends": [Send(Kind.STEP, step, "default", b"step")],
                },
                {
                    "decisions": [Decision(E.WAIT_CREATED, wait, due_in=due)],
                    "sends": [Send(Kind.RUN, "timer", "default", due_in=due)],
                },
                {"decisions": [Decision(E.HOOK_CREATED, hook, token=f"token-{hook}")]},
            ]
        )

    def _ends(self, work: Work, saw: Snapshot) -> dict[str, Any]:
        if not work.running:
            return {}
        id = self.dice.choice(sorted(work.running))
        return {"facts": [self._end(id, work.running[id])]}

    def _end(self, id: str, epoch: Epoch) -> Fact:
        if self.dice.random() < 0.3:
            send = Send(Kind.STEP, id, "default", b"again")
            cause = self.dice.choice(["error", "crash", "drain"])
            due = self.dice.choice([0, 1_000])
            return Fact(E.STEP_RETRYING, id, epoch=epoch, due_in=due, send=send, cause=cause)
        return Fact(self.dice.choice([E.STEP_COMPLETED, E.STEP_FAILED]), id, epoch=epoch)

    def _repairs(self, work: Work, saw: Snapshot) -> dict[str, Any]:
        """The rows of the dispatch table that keep steps and timers moving."""
        assert saw.table is not None
        parts: dict[str, Any] = {"decisions": [], "sends": [], "facts": []}
        me = work.delivery.held
        for step in saw.table.steps:
            mine = step.owner is not None and step.owner.message_id == me.message_id
            if step.state == "running" and mine and step.owner.number < me.number:  # type: ignore[union-attr]
                parts["decisions"].append(Decision(E.STEP_STARTED, step.id, mode="inline"))
            elif step.state in ("created", "retrying") and not step.has_message:
                parts["sends"].append(Send(Kind.STEP, step.id, "default", b"step", due_at=step.due))
            elif step.state == "running" and not step.owner_live and not mine:
                parts["sends"].append(Send(Kind.STEP, step.id, "default", b"step"))
        for wait in saw.table.waits:
            if wait.due <= self.kit.clock.now:
                parts["facts"].append(Fact(E.WAIT_COMPLETED, wait.id))
            else:
                parts["sends"].append(Send(Kind.RUN, "timer", "default", due_at=wait.due))
        return parts

    def _settle(self, work: Work, saw: Snapshot) -> dict[str, Any]:
        assert saw.table is not None
        owned = [s for s in saw.table.steps if s.owner and s.owner.message_id == work.delivery.message_id]
        if work.running or owned:
            return {}
        parts: dict[str, Any] = {"settles": [work.delivery.held]}
        if not (saw.table.steps or saw.table.waits or saw.table.hooks):
            parts["decisions"] = [Decision(E.RUN_COMPLETED)]
        return parts

    async def _send(self, work: Work, parts: dict[str, Any]) -> Reply:
        assert work.saw is not None
        work.seq += 1
        advanced = bool(parts.get("facts")) and self.dice.random() < 0.5
        if advanced and parts.get("settles") and self._ends_all(parts, work.saw):
            parts["decisions"] = [*parts.get("decisions", []), Decision(E.RUN_COMPLETED)]
        work.last = Transition(
            work.delivery.run_id,
            new_mark(),
            work.delivery.held,
            work.seq,
            seen=work.saw.head,
            position=work.saw.position,
            advanced=advanced,
            **parts,
        )
        reply = await self.kit.log(work.consumer).append(work.last, queue="default")
        work.running |= {id: start.epoch for id, start in reply.starts.items()}
        for fact, answer in zip(work.last.facts, reply.facts, strict=False):
            if answer in (A.OK, A.EXISTS, A.SUPERSEDED, A.EXPIRED):
                work.running.pop(fact.id, None)
        settled = parts.get("settles") and reply.answer is A.OK and not reply.unsettled
        if reply.answer in OVER or settled:
            self._forget(work)
        work.saw = None
        if reply.status in FINISHED and work.delivery.run_id in self.runs:
            self.runs.remove(work.delivery.run_id)
        return reply

    def _ends_all(self, parts: dict[str, Any], saw: Snapshot) -> bool:
        """Would a body that has seen these facts have nothing left to wait for?"""
        assert saw.table is not None
        entities: list[OpenStep | OpenWait | OpenHook] = [
            *saw.table.steps,
            *saw.table.waits,
            *saw.table.hooks,
        ]
        return {entity.id for entity in entities} <= {fact.id for fact in parts["facts"]}

    # -- the end ---------------------------------------------------------------------------------------

    async def bring_home(self) -> None:
        """Both workers are dead; one worker that does nothing wrong is left."""
        self.works, self.bodies = [], []
        for _ in range(40):
            await self.unpark()
            for run in list(self.runs):
                await self._close_hooks(run)
            for delivery in await self.kit.take("c3"):
                await self._finish(delivery)
            if not self.runs:
                return
            await self.kit.lease_passes()
        raise AssertionError(f"not home: {self.runs}, {await self.kit.waiting(self.runs[0])}")

    async def _close_hooks(self, run: str) -> None:
        for hook in range(1, 50):
            answer, _ = await self.kit.resume(run, f"home{self.resumes}", f"h{hook}")
            if answer is A.NOT_FOUND:
                break
        self.resumes += 1

    async def _finish(self, delivery: Delivery) -> None:
        if delivery.kind == Kind.STEP:
            claim = await self.kit.claim("c3", delivery)
            if claim.answer is A.OK:
                await self.kit.log("c3").append(
                    Transition(
                        delivery.run_id,
                        new_mark(),
                        delivery.held,
                        2,
                        facts=[Fact(E.STEP_COMPLETED, delivery.key, epoch=claim.epoch)],
                        settles=[delivery.held],
                    ),
                    queue="default",
                )
            return
        work = Work(delivery, "c3")
        self.works = [work]
        while work in self.works:
            work.saw = await self.kit.log("c3").read(delivery.run_id, table=True)
            assert work.saw is not None
            hooks = work.saw.table.hooks if work.saw.table else ()
            parts = self._repairs(work, work.saw) if work.saw.table else {}
            facts = [Fact(E.STEP_COMPLETED, id, epoch=epoch) for id, epoch in work.running.items()]
            disposes = [Decision(E.HOOK_DISPOSED, hook.id) for hook in hooks]
            if (any(parts.values()) and self.dice.random() < 0.7) or facts or disposes:
                parts["facts"] = [*parts.get("facts", []), *facts]
                parts["decisions"] = [*parts.get("decisions", []), *disposes]
                await self._send(work, parts)
            else:
                more = self._plan_end(work)
                await self._send(
                    work, {key: [*parts.get(key, []), *more.get(key, [])] for key in (*parts, *more)}
                )

    def _plan_end(self, work: Work) -> dict[str, Any]:
        assert work.saw is not None
        if work.saw.table is None or work.saw.status in FINISHED:
            return {"settles": [work.delivery.held]}
        return self._settle(work, work.saw)


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_is_ever_out_of_place(kit: StoreKit, seed: int) -> None:
    model = Model(kit, seed)
    for number in range(STEPS):
        move = await model.step()
        breaches = await kit.breaches()
        assert breaches == [], f"seed {seed}, step {number}, after {move}"
    await model.bring_home()
