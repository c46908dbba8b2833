"""User-chosen hook tokens: asked for before their hook is created, so that a conflict is decided once.

The registry is a hint. Whoever finds a token taken looks at the holder's run and takes it over when that
hook is closed or its run is over.
"""

from __future__ import annotations

from collections.abc import Iterable

from world_redis.events import FINISHED
from world_redis.hooks import HookAddress
from world_redis.log import NOTHING_NEW

from ..core.calls import HookCall
from .host import Host


class ChosenTokens:
    """The chosen tokens of one run."""

    def __init__(self, run_id: str, host: Host) -> None:
        self._run_id = run_id
        self._host = host
        self._asked: dict[str, str] = {}  # hook id → token
        self.conflicts: dict[str, str] = {}  # hook id → run that holds its token

    async def ask(self, call: HookCall) -> None:
        """Register the token of a hook about to be created."""
        if call.id not in self._asked:
            self._asked[call.id] = call.token
            await self._ask(call)

    async def release(self, ids: Iterable[str]) -> None:
        """Forget the tokens of hooks that were closed. A crash before this is healed by `ask`."""
        for id in ids:
            token = self._asked.pop(id, None)
            if token is not None and id not in self.conflicts:
                await self._host.tokens.release(token, HookAddress(self._run_id, id))

    async def release_all(self) -> None:
        await self.release(list(self._asked))

    async def _ask(self, call: HookCall) -> None:
        mine = HookAddress(self._run_id, call.id)
        holder = await self._host.tokens.claim(call.token, mine)
        if holder == mine:
            return
        if await self._is_open(holder) or not await self._host.tokens.take_over(call.token, holder, mine):
            self.conflicts[call.id] = holder.run_id

    async def _is_open(self, holder: HookAddress) -> bool:
        """Open, or about to be: its run is alive and has not come that far."""
        run = await self._host.log.read(holder.run_id, seen=NOTHING_NEW, table=True)
        if run is None or run.status in FINISHED or run.table is None:
            return False
        created = int(run.record.get("h") or b"0")
        return int(holder.hook[1:]) > created or any(hook.id == holder.hook for hook in run.table.hooks)
