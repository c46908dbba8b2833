"""What several tasks ask of the store for one run in one turn of the loop, asked in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .ports import Ports

MAX_ASKED = 100  # in one call: a script keeps everybody else waiting
MAX_BYTES = 8 << 20  # of payload in one call; what is larger by itself goes alone

Asked = TypeVar("Asked")
Told = TypeVar("Told")


@dataclass(slots=True)
class _Call(Generic[Asked, Told]):
    asked: list[Asked] = field(default_factory=list)
    size: int = 0  # bytes
    told: asyncio.Task[Sequence[Told]] | None = None


class Together(Generic[Asked, Told]):
    """A question is a call of its own unless others come with it: nobody waits for company."""

    def __init__(self, ports: Ports, ask: Callable[[Sequence[Asked]], Awaitable[Sequence[Told]]]) -> None:
        """`ask` makes the call. It answers one for each, in order; what it raises, everybody is told."""
        self._ports = ports
        self._ask = ask
        self._open: dict[Hashable, _Call[Asked, Told]] = {}  # those that may still be joined

    async def __call__(self, group: Hashable, asked: Asked, *, size: int = 0) -> Told:
        """The answer to `asked`, together with whatever else of `group` is asked now. `size` in bytes."""
        call = self._open.get(group)
        if call is None or len(call.asked) == MAX_ASKED or call.size + size > MAX_BYTES:
            call = self._open[group] = _Call()
            call.told = self._ports.spawn(self._send(group, call), f"ask for {group}")
        place = len(call.asked)
        call.asked.append(asked)
        call.size += size
        assert call.told is not None
        # Shielded: one who is cancelled must not take the others along.
        return (await asyncio.shield(call.told))[place]

    async def _send(self, group: Hashable, call: _Call[Asked, Told]) -> Sequence[Told]:
        """A task begins in the turn after the one that made it: until then others join."""
        if self._open.get(group) is call:
            del self._open[group]
        return await self._ask(call.asked)
