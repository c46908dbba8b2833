"""The hooks of a body: payloads that came, and who waits for them."""

from __future__ import annotations

from collections import deque
from typing import Any

from world_redis.events import Event, EventType

from ..core.calls import Payload
from ..core.records import HookConflict, HookReceived, unpack
from ..sdk.errors import HookConflictError, HookDisposedError, TypeValidationError
from ..sdk.values import Codec
from .bodyloop import BodyFuture, BodyLoop


def check_class(cls: type[Any], codec: Codec) -> None:
    """Payloads that do not fit are passed over; of a class that none can fit, all would be.

    Raises:
        TypeValidationError: this is such a class.
    """
    path = f"payload of hook {cls.__qualname__}"
    if codec.shape(cls, path).opaque and not codec.types.knows_kind_of(cls):
        reason = "make the class a dataclass or a pydantic model, or put @serializable on those below it"
        raise TypeValidationError(reason, path=path)


class HookFuture(BodyFuture):
    """Completes with a payload of a hook, or with its creation."""

    __slots__ = ("waits_for",)

    def __init__(self, loop: BodyLoop, hook_id: str) -> None:
        super().__init__(loop=loop)
        self.waits_for = f"hook ({hook_id})"


class Hook:
    """One hook, from its call on."""

    def __init__(self, loop: BodyLoop, id: str, token: str) -> None:
        self.token = token
        self.conflict: HookConflict | None = None
        self._loop = loop
        self._id = id
        self._created = False  # hook_created was delivered
        self._disposed = False
        self._payloads: deque[Payload] = deque()  # received, not asked for yet
        self._takers: deque[HookFuture] = deque()  # waiting for a payload
        self._askers: deque[HookFuture] = deque()  # waiting to know of a conflict

    # --- asked by the body ------------------------------------------------------------------------

    def next_payload(self) -> HookFuture:
        future = HookFuture(self._loop, self._id)
        if self._disposed:
            future.set_exception(HookDisposedError(self.token))
        elif self.conflict is not None:
            future.set_exception(_error_of(self.conflict))
        elif self._payloads:
            future.set_result(self._payloads.popleft())
        else:
            self._takers.append(future)
        return future

    def ask_for_conflict(self) -> HookFuture:
        """Completes with the run that holds the token, or None."""
        future = HookFuture(self._loop, self._id)
        if self.conflict is not None:
            future.set_result(self.conflict.run_id)
        elif self._created:
            future.set_result(None)
        else:
            self._askers.append(future)
        return future

    def dispose(self) -> bool:
        """Close it; False: it was closed before."""
        if self._disposed:
            return False
        self._disposed = True
        self._payloads.clear()
        for taker in _waiting(self._takers):
            taker.set_exception(HookDisposedError(self.token))
        return True

    # --- told by the log --------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Take an event of this hook. Raises ValueError when it cannot be read."""
        match event.type:
            case EventType.HOOK_RECEIVED:
                if not self._disposed:
                    self._receive(Payload(event.slot, unpack(HookReceived, event.data).payload))
            case EventType.HOOK_CREATED:
                self._created = True
                for asker in _waiting(self._askers):
                    asker.set_result(None)
            case EventType.HOOK_CONFLICT:
                self._refuse(unpack(HookConflict, event.data))
            case _:
                raise ValueError(f"not an event of a hook: {event}")

    def _receive(self, payload: Payload) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(payload)
                return
        self._payloads.append(payload)

    def _refuse(self, conflict: HookConflict) -> None:
        self.conflict = conflict
        for asker in _waiting(self._askers):
            asker.set_result(conflict.run_id)
        for taker in _waiting(self._takers):
            taker.set_exception(_error_of(conflict))


def _waiting(futures: deque[HookFuture]) -> list[HookFuture]:
    """Empty `futures`; answers those nobody cancelled."""
    left = [future for future in futures if not future.done()]
    futures.clear()
    return left


def _error_of(conflict: HookConflict) -> HookConflictError:
    return HookConflictError(conflict.token, conflict.run_id or None)
