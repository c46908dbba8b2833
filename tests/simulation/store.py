"""The real store, spoken to synchronously: one script call is one instant of the simulation."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import redis

from world_redis.entities import message_of
from world_redis.keys import RUN_KEYS, Keys
from world_redis.reading import PartitionState, RunState, pairs, run_state
from world_redis.scripts import (
    SCRIPTS,
    ScriptCall,
    Switches,
    arguments,
    pack_lua,
    packed_command,
    unpack_reply,
)

T = TypeVar("T")

PARTITION = 0
QUEUES = ("default", "side")
_DUMP = (Path(__file__).parent / "dump.lua").read_text()


class Store:
    """The one partition of a schedule. `server` is the name its present server goes by."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)
        self._plain = redis.Redis.from_url(url)
        self._plain.response_callbacks.clear()  # replies as the server gives them
        self.keys = Keys("sim")
        self.switches = Switches()
        self.calls = 0
        # Small hashes keep the order of their fields; in big ones it differs from server to server.
        self.client.config_set("hash-max-listpack-entries", 100_000)
        self.client.config_set("hash-max-listpack-value", 1_000_000)
        self._identity: str = self.client.info("server")["run_id"]
        self.restarts = 0
        for script in SCRIPTS.values():
            self.client.script_load(script.text)
        self._dump = self.client.script_load(_DUMP)
        self._record = self.keys.partition(PARTITION)[0]

    @property
    def server(self) -> str:
        """Another name after each restart. The scripts ask the server itself whether it goes by that
        name, and look for it as the beginning of its own: so it is cut shorter each time."""
        return self._identity[: len(self._identity) - self.restarts]

    # --- a schedule ---------------------------------------------------------------------------------

    def reset(self, *, lease: int, now: int, switches: Switches) -> None:
        """An empty partition with a pinned clock. Times in ms."""
        self.client.flushdb()
        self.restarts = 0
        self.switches = switches
        opening = SCRIPTS["partition_open"].text.decode()
        self.client.eval(opening, 1, self._record, self.server, str(lease), pack_lua(list(QUEUES)))
        self.pin(now)

    def snapshot(self) -> dict[bytes, tuple[int, bytes]]:
        """Everything as it is: key → (lifetime in ms, 0 for ever; value)."""
        keys: Any = sorted(self.client.keys("*"))
        pipe = self.client.pipeline(transaction=False)
        for key in keys:
            pipe.pttl(key)
            pipe.dump(key)
        found = pipe.execute()
        return {
            key: (max(0, ms), value) for key, ms, value in zip(keys, found[::2], found[1::2], strict=True)
        }

    def go_back(self, snapshot: dict[bytes, tuple[int, bytes]], *, now: int) -> None:
        """A replica that had not heard the rest takes over."""
        pipe = self.client.pipeline(transaction=False)
        pipe.flushdb()
        for key, (ms, value) in snapshot.items():
            pipe.restore(key, ms, value)
        pipe.execute()
        self.restarts += 1
        self.pin(now)

    def pin(self, now: int) -> None:
        self.client.hset(self._record, "pin", str(now))

    def run(self, call: ScriptCall, *, resent: bool = False) -> list[Any]:
        """Run a script call now."""
        self.calls += 1
        packed = packed_command(self.keys, call, QUEUES, self.server, self.switches, resent=resent)
        reply = unpack_reply(self.client.execute_command("EVALSHA", *arguments(packed)))
        assert reply[0] not in (b"server", b"closed", b"keys"), reply
        return reply

    async def __call__(self, call: ScriptCall) -> list[Any]:
        """The same for the typed stubs of world_redis: see `at_once`."""
        return self.run(call)

    async def command(self, *args: bytes | str | int) -> Any:
        return self._plain.execute_command(*args)

    # --- looking ------------------------------------------------------------------------------------

    def due_times(self) -> list[int]:
        """Every moment (ms) at which something of the store falls due or lapses."""
        pipe = self.client.pipeline(transaction=False)
        for queue in QUEUES:
            _, delayed, flight, *_ = self.keys.queue(PARTITION, queue)
            pipe.zrange(delayed, 0, 3, withscores=True)
            pipe.zrange(flight, 0, 3, withscores=True)
        return [int(score) for found in pipe.execute() for _, score in found]

    def dump(self, *, logs: bool) -> PartitionState:
        tag = self.keys.partition(PARTITION)[0].rpartition(":")[0]
        raw = self.client.evalsha(self._dump, 0, tag, int(logs), *QUEUES)
        messages, places, opened, done, parked, runs = msgpack.unpackb(raw, raw=True)
        fields = {name.decode(): value for name, value in pairs(messages)}
        return PartitionState(
            messages={id: message_of(id, v) for id, v in fields.items() if not id.endswith(":p")},
            payloads={id[:-2] for id in fields if id.endswith(":p")},
            places=[tuple(part.decode() for part in place) for place in places],
            open={id.decode() for id in opened},
            done={id.decode() for id in done},
            parked={id.decode(): msgpack.unpackb(value)[0] for id, value in pairs(parked)},
            runs={run[0].decode(): self._run(*run) for run in runs if run[1]},
        )

    def _run(
        self, id: bytes, record: Any, entities: Any, out: Any, lifetimes: Sequence[int], log: Any
    ) -> RunState:
        found = run_state(record, entities, out, None if log == 0 else log)
        found.immortal = [key for key, ms in zip(RUN_KEYS, lifetimes, strict=True) if ms == -1]
        return found


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never has to wait, as every stub over `Store` is."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError(f"{work} had to wait")
