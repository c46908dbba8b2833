"""Delivering payloads to hooks, and the registry of user-chosen tokens.

A default token locates its run (``<run id>.<hook number>.<secret>``): no registry. A user-chosen one is
registered under a key of its own, as a hint: whoever finds it taken looks at the owner's run.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .events import Answer
from .ids import is_run_id, partition_of
from .runs import CommandCaller
from .scripts import SCRIPTS, Caller, script_call

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class HookAddress(NamedTuple):
    run_id: str
    hook: str  # short id


def address_of(token: str) -> HookAddress | None:
    """Where a default token leads; None for a user-chosen one."""
    run_id, _, rest = token.partition(".")
    number, _, secret = rest.partition(".")
    if is_run_id(run_id) and _NUMBER.fullmatch(number) and secret:
        return HookAddress(run_id, f"h{number}")
    return None


class Hooks:
    def __init__(self, caller: Caller) -> None:
        self._call = caller

    async def resume(
        self, address: HookAddress, token: str, resume_id: str, data: bytes
    ) -> tuple[Answer, int]:
        """Deliver `data`; answers the event's slot with OK, also for a repeat of the same `resume_id`.
        GONE: closed; EXPIRED: the run is finished; NOT_FOUND: no such hook, or not its token."""
        args = [address.run_id, address.hook, token, resume_id, data]
        partition = partition_of(address.run_id)
        reply = await self._call(script_call("hook_resume", partition, args, runs=[address.run_id]))
        return Answer(reply[0].decode()), reply[1]


class Tokens:
    """The registry of user-chosen tokens."""

    def __init__(self, world: CommandCaller) -> None:
        self._world = world

    async def claim(self, token: str, address: HookAddress) -> HookAddress:
        """Register `token` for a hook about to be created; answers who holds it (maybe another)."""
        key, value = self._world.keys.token(token), f"{address.run_id}.{address.hook}"
        held = await self._world.command("SET", key, value, "NX", "GET")
        return address if held is None else _parse(held)

    async def take_over(self, token: str, loser: HookAddress, winner: HookAddress) -> bool:
        """Move a token whose holder's hook is closed or was never created. False: it moved meanwhile."""
        return await self._move(token, loser, f"{winner.run_id}.{winner.hook}")

    async def find(self, token: str) -> HookAddress | None:
        held = await self._world.command("GET", self._world.keys.token(token))
        return None if held is None else _parse(held)

    async def release(self, token: str, address: HookAddress) -> None:
        """Forget a token whose hook was closed, unless it moved on."""
        await self._move(token, address, "")

    async def _move(self, token: str, holder: HookAddress, value: str) -> bool:
        key, text = self._world.keys.token(token), SCRIPTS["token_move"].text
        return await self._world.command("EVAL", text, 1, key, f"{holder.run_id}.{holder.hook}", value) == 1


def _parse(raw: object) -> HookAddress:
    assert isinstance(raw, bytes)
    run_id, _, hook = raw.decode().partition(".")
    return HookAddress(run_id, hook)
