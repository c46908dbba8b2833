"""Hooks: a body waits for payloads that somebody outside sends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Generic, Self, TypeVar

from .context import BodyPort, body_for, current_body
from .errors import HookDisposedError, InternalError, SerializationError
from .texts import plain_text

H = TypeVar("H")

Resume = Callable[["BaseHook", "str | HookEvent[Any] | Any", "str | None"], Awaitable[Any]]


class HookEvent(Generic[H]):
    """An open hook of the body: ``await hook`` for the next payload, ``async for`` for all.

    Payloads that come before they are asked for are kept. One that does not fit the class is passed over: it
    is logged and counted, and the hook waits for the next. ``async with`` disposes it at the end.

    Attributes:
        token: what `BaseHook.resume` needs; default tokens cannot be guessed.
    """

    def __init__(self, body: BodyPort, cls: type[H], id: str, token: str) -> None:
        self.token = token
        self._body = body
        self._cls = cls
        self._id = id

    def __await__(self) -> Generator[Any, Any, H]:
        """The next payload.

        Raises:
            HookConflictError: another live run holds the token.
            HookDisposedError: the hook was disposed.
        """
        return self._next().__await__()

    async def _next(self) -> H:
        while True:
            slot, data = await self._body.next_payload(self._id)
            try:
                payload: H = self._body.read(data, self._cls, f"payload of hook {self._cls.__qualname__}")
            except SerializationError as error:
                # Whoever knows the token could end the run by a slip of the hand, if this were raised.
                self._body.pass_over(self._id, slot, str(error))
            else:
                return payload

    def __aiter__(self) -> AsyncIterator[H]:
        return self

    async def __anext__(self) -> H:
        try:
            return await self._next()
        except HookDisposedError:
            raise StopAsyncIteration from None

    async def get_conflict(self) -> str | None:
        """Wait until the hook is recorded; the id of the run that holds its token, or None."""
        return await self._body.hook_conflict(self._id)

    def dispose(self) -> None:
        """Close the hook: later payloads are refused. A second call does nothing."""
        self._body.dispose(self._id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.dispose()

    def __repr__(self) -> str:
        return f"<hook {self._cls.__qualname__} {self._id}>"


class BaseHook:
    """Base of payload classes: a dataclass, a pydantic model, or a plain class with payloads below it that
    are registered with `serializable`.

    ``async with Approval.wait() as hook: approval = await hook`` in a body;
    ``await Approval(...).resume(token)`` outside.
    """

    @classmethod
    def wait(cls, *, token: str | None = None, metadata: Any = None) -> HookEvent[Self]:
        """Open a hook. `token` names it to the outside (unique among live runs); None makes one
        that cannot be guessed. `metadata` is shown to whoever looks the hook up.

        Raises:
            ValueError: `token` is empty or looks like a default one.
            SerializationError: `metadata` cannot be recorded.
            TypeValidationError: payloads of this class cannot be read at all.
            RuntimeError: not in a workflow body.
        """
        body = body_for(f"{cls.__qualname__}.wait()")
        if token is not None:
            plain_text(token, "hook token")
        id, made = body.open_hook(cls, token, metadata)
        return HookEvent(body, cls, id, made)

    async def resume(self, token_or_hook: Any, idempotency_key: str | None = None) -> Any:
        """Send this payload to an open hook, by its token or the hook that was looked up.

        With `idempotency_key` a repeat delivers nothing more.

        Raises:
            HookNotFoundError: nobody waits for this token.
            RuntimeError: called in a workflow body; do it in a step.
        """
        if current_body() is not None:
            raise RuntimeError("resume() reaches outside the workflow; call it in a step")
        if _resume is None:
            raise InternalError("no client was installed to resume hooks")
        return await _resume(self, token_or_hook, idempotency_key)


_resume: Resume | None = None


def install_resume(resume: Resume) -> None:
    """Set what `BaseHook.resume` calls with payload, token or hook, and idempotency key."""
    global _resume
    _resume = resume
