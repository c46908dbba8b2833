"""What a workflow body may call, beside its steps, children and hooks.

Each of these gives the same answer in every replay: time moves with the events of the log, and
randomness comes from a seed kept in it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, MutableMapping
from datetime import UTC, datetime
from random import Random
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar
from uuid import UUID

from .context import BodyPort, WorkflowMetadata, body_for, current_body
from .definitions import WorkflowDefinition
from .durations import Duration, When, parse_duration, parse_when
from .errors import DurationError, RunTimeoutError
from .texts import plain_text

P = ParamSpec("P")
T = TypeVar("T")

# --- time ---------------------------------------------------------------------------------------


async def sleep(duration: When) -> None:
    """Suspend the workflow for `duration` (seconds, ``"1h30m"``, ``timedelta``), or until a
    ``datetime``. It holds no worker and survives restarts; zero only lets other tasks run.

    Raises:
        DurationError: `duration` cannot be read, or is negative.
        RuntimeError: not in a workflow body.
    """
    body = body_for("sleep()")
    when = parse_when(duration)
    if isinstance(when, datetime):
        await _sleep_until(body, when)
    elif when == 0:
        await asyncio.sleep(0)
    else:
        await body.wait(max(1, math.ceil(round(when * 1000, 3))), 0)


async def sleep_until(moment: datetime) -> None:
    """Suspend the workflow until `moment` (aware); a moment that has passed only lets other tasks
    run.

    Raises:
        DurationError: `moment` has no time zone.
        RuntimeError: not in a workflow body.
    """
    body = body_for("sleep_until()")
    when = parse_when(moment)
    if not isinstance(when, datetime):
        raise DurationError(f"sleep_until() takes a datetime, not {type(moment).__name__}")
    await _sleep_until(body, when)


async def _sleep_until(body: BodyPort, moment: datetime) -> None:
    due = math.ceil(round(moment.timestamp() * 1000, 3))
    if due <= body.now_ms():
        await asyncio.sleep(0)
    else:
        await body.wait(0, due)


def now() -> datetime:
    """The time of the last event the workflow has seen (UTC). It stands still in between."""
    body = body_for("now()")
    body.check()
    return datetime.fromtimestamp(body.now_ms() / 1000, UTC)


def time_ns() -> int:
    """`now` in nanoseconds since the epoch."""
    body = body_for("time_ns()")
    body.check()
    return body.now_ms() * 1_000_000


# --- randomness ---------------------------------------------------------------------------------


def random() -> Random:
    """The workflow's random generator: ``random().choice(...)``. Not for secrets."""
    return body_for("random()").random()


def uuid4() -> UUID:
    """A new UUID, the same in every replay."""
    return body_for("uuid4()").uuid4()


# --- the run itself -----------------------------------------------------------------------------


def get_workflow_metadata() -> WorkflowMetadata:
    """Name, version, ids and start of the run whose body this is."""
    return body_for("get_workflow_metadata()").metadata()


_MAX_KEY = 256  # bytes of UTF-8
_MAX_VALUE = 256  # bytes of UTF-8


async def set_attributes(attributes: Mapping[str, str]) -> None:
    """Set attributes of the run: short text that people and `list_runs` can see.

    It is recorded with the calls around it, and does not wait for that.

    Raises:
        ValueError: a key or value is empty, too long, or the key starts with ``$``.
        RuntimeError: not in a workflow body.
    """
    body = body_for("set_attributes()")
    for key, value in attributes.items():
        _check_key(key)
        if value != "":
            plain_text(value, f"attribute {key!r}: value", limit=_MAX_VALUE)
    body.set_attributes(attributes)


async def remove_attributes(*keys: str) -> None:
    """Remove attributes of the run; those it does not have are ignored.

    Raises:
        ValueError: a key is not one.
        RuntimeError: not in a workflow body.
    """
    body = body_for("remove_attributes()")
    for key in keys:
        _check_key(key)
    body.set_attributes(dict.fromkeys(keys))


def _check_key(key: str) -> None:
    if plain_text(key, "attribute key", limit=_MAX_KEY).startswith("$"):
        raise ValueError(f"attribute key {key!r}: it must not start with '$'")


def patched(change_id: str) -> bool:
    """Whether this run takes the new code of a change to its workflow.

    True for runs that reach this point for the first time with it, false for those that passed it
    before the change was deployed; the answer is recorded.

    Raises:
        ValueError: `change_id` is no text that can be recorded.
        RuntimeError: not in a workflow body.
    """
    return body_for("patched()").patched(plain_text(change_id, "change id"))


class ContinueAsNew(BaseException):
    """Ends the body so that a new run takes over; see `continue_as_new`."""

    def __init__(self, input: bytes) -> None:
        super().__init__("the run continues as a new one")
        self.input = input


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run and start another one of the same workflow with these arguments.

    Whoever waits for the result of this run gets the new one's. The new run has the attributes that
    this one ends with. Call it from the workflow itself, not from a task beside it.

    Raises:
        TypeValidationError, SerializationError: the arguments do not fit or cannot be recorded.
        RuntimeError: not in a workflow body.
    """
    body = body_for("continue_as_new()")
    body.check()
    signature = body.workflow.signature
    raise ContinueAsNew(signature.encode_arguments(args, kwargs, with_defaults=True))


# --- children -----------------------------------------------------------------------------------


class ChildRun(Generic[T]):
    """A child run started with `start` in a body.

    Attributes:
        run_id: of the child.
    """

    def __init__(self, run_id: str, ended: asyncio.Future[T]) -> None:
        self.run_id = run_id
        self._ended = ended

    async def return_value(self, *, timeout: Duration | None = None) -> T:
        """Wait for the child's end and return its result.

        Raises:
            WorkflowRunFailedError: the child failed; what it raised is the cause.
            RunCancelledError: the child was cancelled or terminated.
            RunTimeoutError: `timeout` has passed; the child goes on.
        """
        seconds = None if timeout is None else parse_duration(timeout)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                # Shielded: giving up waiting does not end the child.
                return await asyncio.shield(self._ended)
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise
            raise RunTimeoutError(self.run_id, seconds) from None

    def __repr__(self) -> str:
        return f"<child run {self.run_id}>"


def start_child(workflow: WorkflowDefinition[P, T], *args: P.args, **kwargs: P.kwargs) -> ChildRun[T]:
    """What `start` does in a body: issue the child and go on at once."""
    call, ended = body_for("start()").child(workflow, args, kwargs, resolved=True)
    return ChildRun(call.run_id, ended)


# --- several at once ----------------------------------------------------------------------------


class as_completed(Generic[T]):
    """Await several things in the order they end, as ``asyncio.as_completed``, but started in the
    order they are given. ``for each in as_completed(...): value = await each``, or ``async for``
    over the finished tasks.

    `timeout` limits the whole; then awaiting raises ``TimeoutError``.
    """

    def __init__(self, awaitables: Iterable[Awaitable[T]], *, timeout: Duration | None = None):
        loop = asyncio.get_running_loop()
        self._left = 0
        self._done: deque[asyncio.Future[T]] = deque()
        self._takers: deque[asyncio.Future[asyncio.Future[T]]] = deque()
        self._expired = False
        self._timer: asyncio.TimerHandle | None = None
        seconds = None if timeout is None else parse_duration(timeout)
        futures = [asyncio.ensure_future(each) for each in awaitables]
        self._left = len(futures)
        if seconds is not None and futures:
            self._timer = loop.call_later(seconds, self._expire)
        self._running = len(futures)
        for future in futures:
            future.add_done_callback(self._end)

    def __iter__(self) -> Iterator[Awaitable[T]]:
        while self._left:
            self._left -= 1
            yield self._value()

    async def __aiter__(self) -> AsyncIterator[asyncio.Future[T]]:
        while self._left:
            self._left -= 1
            yield await self._next()

    async def _value(self) -> T:
        return (await self._next()).result()

    async def _next(self) -> asyncio.Future[T]:
        if self._done:
            return self._done.popleft()
        if self._expired:
            raise TimeoutError
        taker: asyncio.Future[asyncio.Future[T]] = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        return await taker

    def _end(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if self._running == 0 and self._timer is not None:
            self._timer.cancel()
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(future)
                return
        self._done.append(future)

    def _expire(self) -> None:
        self._expired = True
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_exception(TimeoutError())


# --- logging ------------------------------------------------------------------------------------


def is_replaying() -> bool:
    """Whether the body is repeating what it did before. False outside a body."""
    body = current_body()
    return body is not None and body.replaying


class ReplayFilter(logging.Filter):
    """Lets nothing through that a body logs while it replays or is being dropped.

    On the root handlers it also silences libraries a body calls.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        body = current_body()
        return body is None or not (body.replaying or body.dropping)


class _BodyLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds run and workflow to what a body logs."""

    def isEnabledFor(self, level: int) -> bool:
        body = current_body()
        silent = body is not None and (body.replaying or body.dropping)
        return not silent and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        body = current_body()
        if body is not None:
            extra = {"run_id": body.run_id, "workflow": body.workflow.name}
            kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return msg, kwargs


logger = _BodyLogger(logging.getLogger("worker.user"), {})
"""A logger for bodies: silent in replay; elsewhere an ordinary one."""
