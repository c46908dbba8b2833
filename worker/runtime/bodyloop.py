"""The event loop a workflow body runs on.

It does no I/O and has no clock. Ready callbacks run first in, first out, until none is left: the
body is then *quiet* and can only go on when an event of its log is delivered. Timers become durable
waits. Everything that would reach outside (sockets, threads, executors, signals) is an error that
names the call.

Nothing here may depend on memory addresses. asyncio keeps tasks and futures in sets, so ours hash
by their order of creation, mixed with the run (the process-wide sets of asyncio would otherwise see
the same few hashes from every body).

The loop may be driven inside a task of the worker's own loop: that task steps aside, because
CPython 3.14 has one current task per thread, whatever the loop.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import contextvars
import logging
import math
import sys
import weakref
from asyncio import events
from asyncio.tasks import _enter_task, _leave_task
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NoReturn, Protocol, TypeVar

from ..sdk.errors import BodyDropped
from .watchdog import BodyInterrupted, Watch

T = TypeVar("T")

log = logging.getLogger("worker.body")

MAX_TURNS = 100_000  # callbacks in a row without a new call or a delivered event
MAX_REFUSALS = 100  # BodyDropped raised into one coroutine
STUCK_AFTER = 10.0  # seconds
_NEVER = timedelta.max.total_seconds()  # a longer delay, such as infinity, does not end


class TimerPort(Protocol):
    """Where the loop's timers become durable waits."""

    @property
    def replaying(self) -> bool: ...
    def start_timer(self, timer: BodyTimer, milliseconds: int) -> None: ...
    def cancel_timer(self, timer: BodyTimer) -> None: ...
    def now_ms(self) -> int: ...


class BodyFuture(asyncio.Future[Any]):
    """A future that hashes by its order of creation."""

    __slots__ = ("_order",)

    def __init__(self, *, loop: BodyLoop) -> None:
        self._order = loop.number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._order


class BodyTask(asyncio.Task[Any]):
    """A task that hashes by its order of creation and remembers its context."""

    __slots__ = ("_order", "context")

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: BodyLoop,
        name: str,
        context: contextvars.Context,
    ) -> None:
        # Before the constructor of Task, which puts the task into a set.
        self._order = loop.number()
        self.context = context
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._order


class BodyTimer(asyncio.TimerHandle):
    """A timer that is a durable wait; `wait_id` names it."""

    __slots__ = ("wait_id",)

    wait_id: str


class Rest(StrEnum):
    """How a `turn` ended."""

    QUIET = "quiet"  # nothing is ready, or the main task is done
    SPINNING = "spinning"  # too many callbacks without a new call
    STUCK = "stuck"  # interrupted by the watchdog


class BodyLoop(asyncio.AbstractEventLoop):
    """See the module. `body` is found through the running loop by everything code in it calls."""

    def __init__(self, body: TimerPort, run_id: str, *, stuck_after: float = STUCK_AFTER) -> None:
        self.body = body
        self.main: BodyTask | None = None
        self._tasks: list[BodyTask] = []  # in the order of creation; done ones go in time
        self._prune_at = 64
        self.dropping = False
        self.turns = 0  # since the last new call or delivered event
        self.escaped: BaseException | None = None  # SystemExit or KeyboardInterrupt of a task
        self.abandoned: list[AsyncGenerator[Any, Any]] = []
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] | None = None  # most bodies have none
        self._ready: deque[asyncio.Handle] = deque()
        self._count = 0
        self._base = int.from_bytes(blake2b(run_id.encode(), digest_size=5).digest()) << 16
        self._watch = Watch(stuck_after)
        self._refusals = 0

    # --- driving ----------------------------------------------------------------------------------

    def drive(self, work: Callable[[Watch], None]) -> Watch:
        """Call `work`, which calls `turn`, with this as the running loop of the thread.

        It ends early, without an error, when code in it does not come to rest: the watch then says
        `fired`. A task of the worker's own loop that drives a body steps aside for the body's.
        """
        outer = events._get_running_loop()
        task = None if outer is None else asyncio.current_task(outer)
        hooks, watch = sys.get_asyncgen_hooks(), self._watch
        if outer is not None and task is not None:
            _leave_task(outer, task)
        try:
            watch.arm()
            events._set_running_loop(self)
            # Else a generator abandoned here would be finished on the worker's own loop.
            sys.set_asyncgen_hooks(self._generator_started, self._generator_abandoned)
            work(watch)
        except BodyInterrupted:
            pass
        finally:
            while watch.armed:
                try:
                    watch.disarm()
                except BodyInterrupted:  # it may come now, when the body has just come to rest
                    continue
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(outer)
            if outer is not None and task is not None:
                _enter_task(outer, task)
        return watch

    def turn(self) -> Rest:
        """Run until nothing is ready or the main task is done; only inside `drive`."""
        ready, watch = self._ready, self._watch
        watch.restart()
        while ready:
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._run()
                except (KeyboardInterrupt, SystemExit) as error:
                    self.escaped = error
                    return Rest.QUIET
            self.turns += 1
            if watch.fired:  # the task that was hit keeps the interruption as its result
                return Rest.STUCK
            if self.turns > MAX_TURNS:
                return Rest.SPINNING
            if self.main is not None and self.main.done():
                break
        return Rest.QUIET

    # --- what asyncio asks of a loop --------------------------------------------------------------

    def number(self) -> int:
        """The next number in the order of creation."""
        self._count += 1
        return self._base + self._count

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dropping:
            self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = BodyTimer(self.time() + delay, callback, args, self, context)
        return self._start(timer, delay)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        # To the microsecond: `time() + delay - time()` is not quite delay.
        delay = round(when - self.time(), 6)
        return self._start(BodyTimer(when, callback, args, self, context), delay)

    def _start(self, timer: BodyTimer, delay: float) -> BodyTimer:
        timer.wait_id = ""
        if math.isnan(delay):
            raise ValueError("a delay is a number of seconds, not NaN")
        if self.hold() is not None or delay > _NEVER:
            return timer
        if delay <= 0:
            self._ready.append(timer)
        else:
            self.body.start_timer(timer, max(1, math.ceil(round(delay * 1000, 3))))
        return timer

    def fire(self, timer: BodyTimer) -> None:
        """The durable wait of `timer` has ended."""
        self._ready.append(timer)

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        if isinstance(timer, BodyTimer) and timer.wait_id and not self.dropping:
            self.body.cancel_timer(timer)

    def time(self) -> float:
        """Body time in seconds since the epoch: it moves with the delivered events only."""
        return self.body.now_ms() / 1000

    def create_future(self) -> BodyFuture:
        return self.hold() or BodyFuture(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **_: Any,  # 3.14 passes eager_start; a body's tasks start in turn
    ) -> asyncio.Task[T]:
        if self.dropping:
            coro.close()
            self.check()
        _refuse_as_completed(coro)
        label = f"task {self._count + 1}" if name is None else str(name)
        return self.spawn(coro, label, context or contextvars.copy_context())

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str, context: contextvars.Context) -> BodyTask:
        """Make a task. Unlike `create_task` it may be called while the loop does not run."""
        task = BodyTask(coro, loop=self, name=name, context=context)
        if len(self._tasks) >= self._prune_at:
            self._tasks = self.pending()
            self._prune_at = 64 + 2 * len(self._tasks)
        self._tasks.append(task)
        return task

    def pending(self) -> list[BodyTask]:
        """The tasks that are not done, in the order of creation."""
        return [task for task in self._tasks if not task.done()]

    # --- being dropped ----------------------------------------------------------------------------

    def start_dropping(self) -> None:
        """From now on nothing is recorded and nothing runs; see `teardown`."""
        self.dropping = True
        self._ready.clear()

    def check(self) -> None:
        """Raise `BodyDropped` when the body is being dropped."""
        if self.dropping:
            raise BodyDropped("this body is being dropped from memory; nothing is recorded")

    def hold(self) -> BodyFuture | None:
        """For a call that awaits something, instead of `check`.

        A coroutine that swallows `BodyDropped` and calls again would never end; from its hundredth
        call on it gets a future that never completes, and is suspended for good.
        """
        if not self.dropping:
            return None
        self._refusals += 1
        if self._refusals <= MAX_REFUSALS:
            self.check()
        return BodyFuture(loop=self)

    def forget_refusals(self) -> None:
        """Count the refusals of the next coroutine anew."""
        self._refusals = 0

    def forget(self) -> None:
        """Nothing runs here any more: cut the circles, so that all of a body goes now and not when the
        collector comes by."""
        self._tasks.clear()
        self.main = None
        del self.body

    # --- small questions --------------------------------------------------------------------------

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # Also called by finalizers, so possibly from another thread and after the body is gone.
        if not self.dropping and not self.body.replaying:
            log.warning("%s", context.get("message"), exc_info=context.get("exception"))

    async def shutdown_asyncgens(self) -> None:
        return None

    # --- asynchronous generators ------------------------------------------------------------------

    @property
    def generators(self) -> list[AsyncGenerator[Any, Any]]:
        """Those that are suspended, whoever holds them, and those that nobody holds any more."""
        return [*(self._generators or ()), *self.abandoned]

    def _generator_started(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._generators is None:
            self._generators = weakref.WeakSet()
        self._generators.add(generator)

    def _generator_abandoned(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.is_running() and not self.dropping:
            self.spawn(generator.aclose(), "aclose", contextvars.copy_context())
        else:
            # The collector found it at a moment no replay knows: its `finally` may not run before
            # the body is dropped. Keeping it makes that so.
            self.abandoned.append(generator)


# --- what a body must not do --------------------------------------------------------------------


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refused(self: BodyLoop, *args: Any, **kwargs: Any) -> NoReturn:
        self.check()
        raise RuntimeError(
            f"a workflow body called loop.{name}(): sockets, threads, processes and signals belong "
            f"in a step, because a body is run again and must do the same every time"
        )

    refused.__name__ = name
    return refused


_REFUSED = """
    run_forever run_until_complete stop close call_soon_threadsafe run_in_executor
    set_default_executor shutdown_default_executor getaddrinfo getnameinfo create_connection
    create_server start_tls create_unix_connection create_unix_server connect_accepted_socket
    create_datagram_endpoint connect_read_pipe connect_write_pipe subprocess_shell subprocess_exec
    add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into sock_recvfrom
    sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept sock_sendfile sendfile
    add_signal_handler remove_signal_handler set_task_factory set_exception_handler set_debug
"""

for _name in _REFUSED.split():
    setattr(BodyLoop, _name, _refuse(_name))


def _refuse_as_completed(coro: Coroutine[Any, Any, Any]) -> None:
    """`asyncio.as_completed` makes its tasks from a set of coroutines, which hash by address."""
    frame = sys._getframe(2)
    inside = asyncio.tasks.__dict__
    while frame.f_globals is inside:
        if frame.f_code.co_qualname.startswith(("as_completed", "_AsCompleted")):
            coro.close()
            raise RuntimeError(
                "asyncio.as_completed() starts coroutines in an order that changes from process to "
                "process; in a workflow body use worker.as_completed(), or pass it tasks"
            )
        if frame.f_back is None:
            return
        frame = frame.f_back


class _GatheringFuture(asyncio.tasks._GatheringFuture):  # type: ignore[name-defined,misc]
    """What `asyncio.gather` returns. It is made by asyncio itself and not by the loop, and would
    hash by its address."""

    def __init__(self, children: Any, *, loop: asyncio.AbstractEventLoop) -> None:
        self._order = loop.number() if isinstance(loop, BodyLoop) else id(self)
        super().__init__(children, loop=loop)

    def __hash__(self) -> int:
        return self._order


asyncio.tasks._GatheringFuture = _GatheringFuture  # type: ignore[attr-defined]
