"""What the script tests share: a namespace, several writers, a pinned clock, the whole keyspace as Python."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

import msgpack

from tests.partition import read_partition
from world_redis.events import START, Answer, EventType, Position
from world_redis.hooks import HookAddress, Hooks
from world_redis.ids import new_mark, new_run_id, partition_of
from world_redis.liveness import Breach, check
from world_redis.log import Limits, Log
from world_redis.messages import Delivery, Held, Kind, RunContext, RunMessage
from world_redis.queue import Claim, Queue
from world_redis.runs import Runs
from world_redis.scripts import Switches
from world_redis.transition import ChildStart, Decision, Epoch, Fact, OpenStep, Reply, Send, Transition
from world_redis.world import RedisWorld

E = EventType
A = Answer
LEASE = 30_000  # ms
START_OF_TIME = 1_700_000_000_000  # ms
RETENTION = 7 * 86_400_000  # ms


class Clock:
    """The partition's clock, pinned."""

    def __init__(self, world: RedisWorld, partition: int = 0) -> None:
        self._world, self._record = world, world.keys.partition(partition)[0]
        self.now = 0

    async def set(self, now: int) -> None:
        self.now = now
        await self._world.command("HSET", self._record, "pin", now)

    async def advance(self, ms: int) -> None:
        await self.set(self.now + ms)


@dataclass
class Session:
    """A writer under one delivery, with the counts a real session keeps."""

    kit: StoreKit
    run_id: str
    delivery: Delivery | None
    consumer: str = "c1"
    seq: int = 0
    seen: int = 0
    position: Position | None = START
    epochs: dict[str, Epoch] = field(default_factory=dict)
    last: Transition | None = None

    async def send(self, *, learn: bool = True, parent: str = "", **parts: Any) -> Reply:
        """One transition with the next sequence number. `learn`: go on from what it answers."""
        self.seq += 1
        parts.setdefault("seen", self.seen)
        parts.setdefault("position", self.position)
        parts.setdefault("delivery", self.delivery.held if self.delivery else None)
        parts.setdefault("seq", self.seq if self.delivery else 0)
        self.last = Transition(self.run_id, new_mark(), **parts)
        reply = await self.resend(parent=parent)
        if learn:
            self.learn(reply)
        return reply

    async def resend(self, parent: str = "") -> Reply:
        assert self.last is not None
        log = self.kit.log(self.consumer)
        return await log.append(self.last, queue="default", parent=parent, parent_data=b"told")

    def learn(self, reply: Reply) -> None:
        self.seen, self.position = reply.head, reply.position
        self.epochs |= {id: start.epoch for id, start in reply.starts.items()}

    async def inline(self, *ids: str) -> Reply:
        """Create and start steps here."""
        decisions = []
        for id in ids:
            decisions += [Decision(E.STEP_CREATED, id, b"in"), Decision(E.STEP_STARTED, id, mode="inline")]
        return await self.send(decisions=decisions)

    def done(self, id: str, data: bytes = b"out", **more: Any) -> Fact:
        return Fact(E.STEP_COMPLETED, id, data, epoch=self.epochs.get(id), **more)

    @property
    def held(self) -> Held:
        assert self.delivery is not None
        return self.delivery.held


class StoreKit:
    def __init__(self, world: RedisWorld, url: str) -> None:
        self.world, self.url = world, url
        self.clock = Clock(world)
        self.runs, self.hooks = Runs(world), Hooks(world)
        self.tolerated: set[str] = set()  # rules of liveness.check a test breaks on purpose
        self.others: list[RedisWorld] = []

    # -- writers ---------------------------------------------------------------------------------

    def log(self, consumer: str = "c1", *, max_events: int = 25_000) -> Log:
        return Log(self.world, consumer, Limits(max_events=max_events, retention_ms=RETENTION))

    def queue(self, consumer: str = "c1") -> Queue:
        return Queue(self.world, consumer)

    async def another_world(self, **options: Any) -> RedisWorld:
        """A second client of the same namespace."""
        world = RedisWorld(self.url, namespace=self.world.keys.namespace, **options)
        self.others.append(world)
        return await world.open()

    async def switched(self, **switches: bool) -> StoreKit:
        return StoreKit(await self.another_world(switches=Switches(**switches)), self.url)

    # -- shortcuts -------------------------------------------------------------------------------

    async def lease_passes(self, *, short_of: int = 0) -> None:
        """A lease goes by, less `short_of` ms; halfway somebody looks at what is due, as a fleet does."""
        await self.clock.advance(LEASE // 2)
        await self.take("onlooker", runs=0, steps=0)
        await self.clock.advance(LEASE - LEASE // 2 - short_of)

    async def start(self, *, run_id: str = "", queue: str = "default", **options: Any) -> str:
        run_id = run_id or new_run_id(0)
        answer = await self.runs.start(run_id, run_message(run_id, queue), b"input", **options)
        assert answer is A.OK
        return run_id

    async def take(
        self,
        consumer: str = "c1",
        *,
        runs: int = 50,
        steps: int = 50,
        empty: bool = True,
        queue: str = "default",
    ) -> list[Delivery]:
        taken = await self.queue(consumer).take(0, [queue], runs=runs, steps=steps, empty=empty)
        return taken.deliveries

    async def take_one(self, consumer: str = "c1", **options: Any) -> Delivery:
        (delivery,) = await self.take(consumer, **options)
        return delivery

    async def claim(self, consumer: str, delivery: Delivery, *, mark: bytes | None = None) -> Claim:
        """The claim of one queued step by `consumer`."""
        (claim,) = await self.queue(consumer).claim([delivery], mark=mark)
        return claim

    async def session(self, consumer: str = "c1", **options: Any) -> Session:
        """A new run, taken and started."""
        run_id = await self.start(**options)
        session = Session(self, run_id, await self.take_one(consumer), consumer, seen=1)
        await session.send(decisions=[Decision(E.RUN_STARTED)])
        return session

    async def queued_step(self, session: Session, id: str = "s1") -> Reply:
        return await session.send(
            decisions=[Decision(E.STEP_CREATED, id, b"in")], sends=[Send(Kind.STEP, id, "default", b"step")]
        )

    async def hooked(self, session: Session, id: str = "h1") -> Reply:
        return await session.send(decisions=[Decision(E.HOOK_CREATED, id, token=f"token-{id}")])

    async def resume(self, run_id: str, resume_id: str = "r1", hook: str = "h1") -> tuple[Answer, int]:
        return await self.hooks.resume(HookAddress(run_id, hook), f"token-{hook}", resume_id, b"payload")

    async def record(self, run_id: str) -> dict[str, bytes]:
        snapshot = await self.log().read(run_id)
        assert snapshot is not None
        return snapshot.record

    async def step(self, run_id: str, id: str = "s1") -> OpenStep:
        """An open step as a session's table shows it."""
        snapshot = await self.log().read(run_id, table=True)
        assert snapshot is not None and snapshot.table is not None
        return next(step for step in snapshot.table.steps if step.id == id)

    async def types(self, run_id: str) -> list[str]:
        snapshot = await self.log().read(run_id)
        assert snapshot is not None
        return [f"{event.type}{':' + event.id if event.id else ''}" for event in snapshot.events]

    async def waiting(self, run_id: str) -> dict[str, str]:
        """key → place letter of each message of a run, those in its `out` and others ("wake*")."""
        state = await read_partition(self.world, partition_of(run_id))
        out = state.runs[run_id].out.values() if run_id in state.runs else ()
        mine = [m for m in state.messages.values() if m.run == run_id]
        return {m.key + ("" if m.id in out else "*"): m.state for m in mine}

    async def waits_under(self, run_id: str, key: str) -> str:
        """Id of the message that waits under a key of the run; "": none does."""
        id = await self.world.command("HGET", self.world.keys.run(partition_of(run_id), run_id)[3], key)
        return id.decode() if id else ""

    # -- the keyspace ------------------------------------------------------------------------------

    async def dump(self) -> dict[str, Any]:
        """Every key of the namespace. The partition's clock is left out: a refused call may move it."""
        found: dict[str, Any] = {}
        for key in await keys_of(self.world):
            found[key.decode()] = await self._value(key)
        record = found.get(self.world.keys.partition(0)[0], {})
        for name in (b"last", b"offset"):
            record.pop(name, None)
        return found

    async def _value(self, key: bytes) -> Any:
        kind = await self.world.command("TYPE", key)
        if kind == b"hash":
            flat = await self.world.command("HGETALL", key)
            return dict(flat) if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
        reader: dict[bytes, tuple[bytes | str | int, ...]] = {
            b"stream": ("XRANGE", key, "-", "+"),
            b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES"),
            b"list": ("LRANGE", key, 0, -1),
            b"string": ("GET", key),
        }
        return await self.world.command(*reader[kind])

    async def breaches(self) -> list[Breach]:
        found = check(await read_partition(self.world, 0, logs=True, finished=True))
        found += await strangers(self.world)
        return [breach for breach in found if breach.rule not in self.tolerated]


async def keys_of(world: RedisWorld) -> list[bytes]:
    cursor, found = b"0", []
    while True:
        cursor, page = await world.command(
            "SCAN", cursor, "MATCH", f"{world.keys.namespace}:*", "COUNT", 1000
        )
        found += page
        if cursor == b"0":
            return sorted(found)


async def strangers(world: RedisWorld) -> list[Breach]:
    """Keys that no builder of `keys.py` would make."""
    keys = world.keys
    known = {keys.namespace_record(), *keys.partition(0)}
    packed = await world.command("HGET", keys.partition(0)[0], "queues")
    for queue in msgpack.unpackb(packed):
        known.update(keys.queue(0, queue))
    found = []
    for raw in await keys_of(world):
        name = raw.decode()
        run = re.search(r"wrun_[0-9A-Z]{26}", name)
        owned = name in known or (run and name in keys.run(0, run[0]))
        if not owned and ":token:" not in name and ":start:" not in name:
            found.append(Breach("key", name, "has no owner in keys.py"))
    return found


def run_message(run_id: str, queue: str = "default", **context: Any) -> RunMessage:
    about = RunContext("order", 1, 1, queue, START_OF_TIME, run_id, **context)
    return RunMessage(about, os.urandom(16), b"[]", new_mark())


def child_of(parent: str, step: str, run_id: str) -> ChildStart:
    fields: dict[str, str | int | bytes] = {
        "workflow": "child",
        "queue": "default",
        "parent": parent,
        "parent_step": step,
    }
    return ChildStart(run_id, step, fields, b"input", "default", b"first")
