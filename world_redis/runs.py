"""Starting, ending and finding runs: what clients and operators do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Protocol

import msgpack

from .events import Answer
from .ids import partition_of
from .keys import Keys
from .messages import RunMessage, pack_run_message
from .scripts import Caller, script_call


class CommandCaller(Caller, Protocol):
    """A caller that also runs plain, repeatable commands."""

    keys: Keys

    async def command(self, *args: bytes | str | int) -> object: ...


def run_fields(message: RunMessage) -> dict[str, str | int | bytes]:
    """The run record at birth. Everything else in it is written by the scripts (see entities.py)."""
    c = message.context
    return {
        "workflow": c.workflow,
        "version": c.version,
        "spec": c.spec,
        "queue": c.queue,
        "created": c.created_at,
        "root": c.root_run_id,
        "parent": c.parent_run_id,
        "parent_step": c.parent_step,
        "deployment": c.deployment,
        "traceparent": c.traceparent,
        "timeout": c.timeout,
        "start_key": c.start_key,
        "seed": message.seed,
    }


class Runs:
    def __init__(self, caller: Caller) -> None:
        self._call = caller

    async def start(
        self,
        run_id: str,
        message: RunMessage,
        data: bytes,
        *,
        due_in: int = 0,
        due_at: int = 0,
        extra: Mapping[str, str | int | bytes] | None = None,
    ) -> Answer:
        """Create a run and its first message, due in `due_in` ms or at `due_at` (ms). `data` is
        run_created's. OK, or EXISTS when the id is taken by another start."""
        fields = run_fields(message) | dict(extra or {})
        flat = list(chain.from_iterable(fields.items()))
        queue = message.context.queue
        args = [run_id, flat, data, queue, pack_run_message(message), due_at, due_in]
        call = script_call(
            "run_start",
            partition_of(run_id),
            args,
            queues=[queue],
            runs=[run_id],
            mark=message.mark,
        )
        return _word(await self._call(call))

    async def cancel(self, run_id: str, data: bytes) -> Answer:
        """Ask a run to cancel: OK, EXISTS (asked before), EXPIRED (finished), NOT_FOUND."""
        call = script_call("run_cancel", partition_of(run_id), [run_id, data], runs=[run_id])
        return _word(await self._call(call))

    async def terminate(
        self,
        run_id: str,
        data: bytes,
        *,
        parent: str = "",
        parent_data: bytes = b"",
        retention_ms: int,
        failed: bool = False,
    ) -> Answer:
        """End a run at once, as cancelled or (`failed`) failed. OK, EXISTS, CONFLICT, NOT_FOUND.
        Its parent is told with `parent_data` as its step's event data; not knowing `parent` costs one more
        call."""
        while True:
            args = [run_id, data, parent, parent_data, retention_ms, "rf" if failed else "rx"]
            runs = [run_id, parent] if parent else [run_id]
            reply = await self._call(script_call("run_terminate", partition_of(run_id), args, runs=runs))
            if reply[0] != b"parent":
                return _word(reply)
            parent = reply[1].decode()

    async def unpark(self, run_id: str, *, build: str = "") -> Answer:
        """Let a parked run try again. EXISTS: it is not parked, or `build` has refused it before."""
        call = script_call("run_unpark", partition_of(run_id), [run_id, build], runs=[run_id])
        return _word(await self._call(call))

    async def heal(self, run_id: str, head: int) -> Answer:
        """Wake a run found without a way forward when its log ended at `head`."""
        call = script_call("run_heal", partition_of(run_id), [run_id, head], runs=[run_id])
        return _word(await self._call(call))


async def parked_runs(world: CommandCaller, partition: int) -> dict[str, tuple[str, int, str]]:
    """Run id → (reason, since ms, builds that refused it, space separated)."""
    reply = await world.command("HGETALL", world.keys.partition(partition)[4])
    items = reply.items() if isinstance(reply, dict) else _pairs(reply)
    found = {}
    for run_id, raw in items:
        reason, since, builds = msgpack.unpackb(raw)
        found[run_id.decode()] = (reason, since, builds)
    return found


def _pairs(flat: object) -> list[tuple[bytes, bytes]]:
    assert isinstance(flat, list)
    return list(zip(flat[::2], flat[1::2], strict=True))


def _word(reply: list[bytes]) -> Answer:
    return Answer(reply[0].decode())
