"""The handle of one run, as the outside holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from world_redis.errors import StoreUnavailable
from world_redis.events import FINISHED, Answer, Event, EventType
from world_redis.ids import partition_of
from world_redis.log import NOTHING_NEW, event_of
from world_redis.transition import Table

from ..core.records import CANCELLED, CancelRequested, Failed, pack, unpack
from .durations import Duration, parse_duration
from .errors import (
    RunCancelledError,
    RunExpiredError,
    RunNotFoundError,
    RunTimeoutError,
    WorkflowRunFailedError,
)
from .history import RunEvent, RunInfo, StepInfo, attributes_of, event_info, info_of, steps_of
from .values import decode_failure, encode_failure

if TYPE_CHECKING:
    from .client import Client
    from .definitions import WorkflowDefinition

T = TypeVar("T")

Status = Literal["pending", "running", "completed", "failed", "cancelled"]

_TERMINAL = (EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)
_TAIL = 32  # events read at a time from the end of a log: the terminal one is among the last


class Run(Generic[T]):
    """A run by its id. Making one reads nothing; every method asks the store.

    Attributes:
        run_id: ``wrun_`` and 26 characters.
    """

    def __init__(
        self, client: Client, run_id: str, workflow: WorkflowDefinition[Any, T] | None = None
    ) -> None:
        self.run_id = run_id
        self._client = client
        self._workflow = workflow  # knows the annotation of the result

    @property
    def _keys(self) -> list[str]:
        return self._client.keys.run(partition_of(self.run_id), self.run_id)

    # --- looking ----------------------------------------------------------------------------------

    async def status(self) -> Status:
        """``pending running completed failed cancelled``.

        Raises:
            RunNotFoundError: there is no such run (any more).
        """
        world = await self._client.world()
        status = await world.command("HGET", self._keys[0], "status")
        if status is None:
            raise RunNotFoundError(self.run_id)
        word: Status = status.decode()
        return word

    async def info(self) -> RunInfo:
        """The run's record. Raises RunNotFoundError."""
        world = await self._client.world()
        record = pairs(await world.command("HGETALL", self._keys[0]))
        if not record:
            raise RunNotFoundError(self.run_id)
        return info_of(self.run_id, record)

    async def events(self) -> list[RunEvent]:
        """The whole log, oldest first. Raises RunNotFoundError."""
        codec = self._client.codec
        return [event_info(event, codec) async for event in self._log()]

    async def steps(self) -> list[StepInfo]:
        """Its steps and children in the order of their calls, with owner and lease of the running ones.
        Raises RunNotFoundError."""
        events = [event async for event in self._log()]
        return steps_of(events, await self.table(), self._client.codec)

    async def children(self) -> list[Run[Any]]:
        """The child runs it has started. Raises RunNotFoundError."""
        return [Run(self._client, step.child_run_id) for step in await self.steps() if step.child_run_id]

    async def attributes(self) -> dict[str, str]:
        """Its attributes as they are now. Raises RunNotFoundError."""
        info = await self.info()
        return attributes_of(info.attributes, [event async for event in self._log()])

    async def table(self) -> Table | None:
        """Open steps, waits and hooks as the store sees them now; None when the run is not there."""
        log = await self._client.log()
        snapshot = await log.read(self.run_id, seen=NOTHING_NEW, table=True, record=False)
        return snapshot.table if snapshot is not None else None

    # --- waiting ----------------------------------------------------------------------------------

    async def return_value(self, *, timeout: Duration | None = None) -> T:
        """Wait until the run has ended and return its result. All waiters of a client share one
        connection, which is told of the end.

        A run that went on as a new one (`continue_as_new`) is followed to its last successor.

        Raises:
            WorkflowRunFailedError: it failed; what it raised is the cause.
            RunCancelledError: it was cancelled or terminated.
            RunTimeoutError: `timeout` (as `sleep` takes it) has passed; the run goes on.
            RunNotFoundError: there is no such run (any more).
        """
        seconds = None if timeout is None else parse_duration(timeout)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                end = await self._end()
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise
            raise RunTimeoutError(self.run_id, seconds) from None
        return await self._outcome(end)

    async def _end(self) -> Event:
        """The event that ended it, or the last of its successors."""
        end = await self._own_end()
        if end.type is EventType.RUN_COMPLETED and end.extra:
            return await Run(self._client, end.extra, self._workflow)._end()
        return end

    async def _own_end(self) -> Event:
        partition = partition_of(self.run_id)
        channel = self._client.keys.done_channel(partition, self.run_id)
        await self._client.world()
        async with self._client.notices.of(channel) as notice:
            while True:
                await notice.arm()
                try:
                    if await self.status() in FINISHED:
                        return await self._terminal_event()
                except StoreUnavailable:
                    continue  # it has waited long enough by itself
                await notice.wait()

    async def _terminal_event(self) -> Event:
        async for event in self._backwards():
            if event.type in _TERMINAL:
                return event
        raise RunNotFoundError(self.run_id)  # its retention ended in between

    async def _outcome(self, end: Event) -> T:
        if end.type is EventType.RUN_COMPLETED:
            if self._workflow is None:
                result: T = self._client.codec.decode(end.data, path=f"result of {self.run_id}")
            else:
                result = self._workflow.signature.decode_result(end.data)
            return result
        failed = unpack(Failed, end.data)
        error = decode_failure(failed.failure, self._client.codec.types) if failed.failure else None
        if end.type is EventType.RUN_FAILED:
            raise WorkflowRunFailedError(self.run_id, error, error_code=failed.code)
        if isinstance(error, RunCancelledError):
            raise RunCancelledError(self.run_id, getattr(error, "reason", None))
        raise RunCancelledError(self.run_id, await self._cancel_reason()) from error

    async def _cancel_reason(self) -> str | None:
        async for event in self._backwards():
            if event.type is EventType.RUN_CANCEL_REQUESTED:
                return unpack(CancelRequested, event.data).reason or None
        return None

    # --- changing ---------------------------------------------------------------------------------

    async def cancel(self, *, reason: str = "") -> None:
        """Ask the run to cancel: its body meets ``CancelledError``, its ``finally`` may still run steps.
        Asking again does nothing.

        Raises:
            RunExpiredError: it has ended.
            RunNotFoundError: there is no such run (any more).
        """
        runs = await self._client.runs()
        answer = await runs.cancel(self.run_id, pack(CancelRequested(_readable(reason))))
        await self._check(answer, Answer.OK, Answer.EXISTS)

    async def terminate(self, *, reason: str = "") -> None:
        """End the run at once, as cancelled; its code is not asked. Repeating it does nothing.

        Raises:
            RunExpiredError: it has ended otherwise.
            RunNotFoundError: there is no such run (any more).
        """
        runs = await self._client.runs()
        failure = encode_failure(RunCancelledError(self.run_id, _readable(reason) or "terminated"))
        data = pack(Failed(CANCELLED, failure))
        answer = await runs.terminate(
            self.run_id, data, parent_data=data, retention_ms=self._client.retention_ms
        )
        await self._check(answer, Answer.OK, Answer.EXISTS)
        await self._client.end_claim(self.run_id)

    async def retry(self) -> Run[T]:
        """Let a parked run try again (the same run), or start a failed or cancelled one anew with the
        same arguments (a new run, with ``retried_from``).

        Raises:
            RunExpiredError: it has completed.
            ValueError: it is neither parked nor ended.
            RunNotFoundError: there is no such run (any more).
        """
        info = await self.info()
        if info.status == "completed":
            raise RunExpiredError(self.run_id, info.status)
        if info.finished:
            first = await anext(self._log())
            run_id = await self._client.start_again(info, first.data)
            return Run(self._client, run_id, self._workflow)
        runs = await self._client.runs()
        if await runs.unpark(self.run_id) is not Answer.OK:
            raise ValueError(f"run {self.run_id!r} is {info.status} and not parked: nothing to retry")
        return self

    async def _check(self, answer: Answer, *fine: Answer) -> None:
        if answer in fine:
            return
        if answer is Answer.NOT_FOUND:
            raise RunNotFoundError(self.run_id)
        raise RunExpiredError(self.run_id, await self.status())

    # --- the log ----------------------------------------------------------------------------------

    async def _log(self) -> AsyncIterator[Event]:
        log, seen, more = await self._client.log(), 0, True
        while more:
            page = await log.read(self.run_id, seen=seen, record=False)
            if page is None:
                raise RunNotFoundError(self.run_id)
            for event in page.events:
                seen = event.slot
                yield event
            more = page.more

    async def _backwards(self) -> AsyncIterator[Event]:
        world, end = await self._client.world(), "+"
        while True:
            page = await world.command("XREVRANGE", self._keys[1], end, "-", "COUNT", _TAIL)
            for entry in page:
                event = event_of(entry)
                end = f"({event.slot}-0"
                yield event
            if len(page) < _TAIL:
                return

    def __repr__(self) -> str:
        return f"<run {self.run_id}>"


def pairs(reply: Any) -> dict[str, bytes]:
    items = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value for name, value in items}


def _readable(reason: str) -> str:
    """A reason for people, kept short and valid."""
    return reason.encode("utf-8", "replace")[:512].decode("utf-8", "ignore")
