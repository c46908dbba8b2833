"""The loop bodies run on: durable timers, no outside, and an order no address decides."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import inspect
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.core.player import Player, raised, returned, short
from worker.core.calls import WaitCall
from worker.runtime.bodyloop import _REFUSED, BodyLoop
from worker.sdk.registry import Workflows

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def body_of(code: Callable[[Any], Awaitable[Any]]) -> Player:
    """A run whose body is `code`, called with a step that takes a number."""
    wf = Workflows()

    @wf.step(name="work")
    async def work(n: int) -> int: ...

    @wf.workflow(name="main")
    async def main() -> Any:
        return await code(work)

    return Player(main)


# --- order --------------------------------------------------------------------------------------


def test_callbacks_run_first_in_first_out() -> None:
    async def code(_: Any) -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        for n in range(3):
            loop.call_soon(seen.append, n)
        loop.call_later(0, seen.append, 3)
        await asyncio.sleep(0)
        return seen

    assert returned(body_of(code)) == [0, 1, 2, 3]


def test_sets_of_tasks_and_futures_keep_the_order_of_creation() -> None:
    async def code(_: Any) -> list[bool]:
        async def nothing() -> None: ...

        tasks = [asyncio.create_task(nothing()) for _ in range(8)]
        futures = [asyncio.get_running_loop().create_future() for _ in range(8)]
        gathers = [asyncio.gather(nothing()) for _ in range(4)]
        hashes = [[hash(each) for each in some] for some in (tasks, futures, gathers)]
        await asyncio.gather(*tasks, *gathers)
        return [some == sorted(some) for some in hashes]

    assert returned(body_of(code)) == [True, True, True]


def test_hashes_differ_from_run_to_run() -> None:
    one, two = (BodyLoop(None, run) for run in ("wrun_a", "wrun_b"))  # type: ignore[abstract,arg-type]
    assert one.number() >> 16 != two.number() >> 16
    assert one.number() - one.number() == -1


def test_gather_outside_a_body_is_untouched() -> None:
    async def main() -> list[int]:
        async def one() -> int:
            return 1

        both = asyncio.gather(one(), one())
        assert hash(both) == hash(both)
        return list(await both)

    assert asyncio.run(main()) == [1, 1]


def test_task_names_do_not_count_across_runs() -> None:
    async def code(_: Any) -> list[str]:
        async def nothing() -> None: ...

        tasks = [asyncio.create_task(nothing()), asyncio.create_task(nothing(), name="mine")]
        await asyncio.wait(tasks)
        return [task.get_name() for task in tasks]

    assert returned(body_of(code)) == returned(body_of(code))
    assert returned(body_of(code))[1] == "mine"


def test_queues_locks_groups_and_conditions_work() -> None:
    async def code(work: Any) -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock, limit = asyncio.Lock(), asyncio.Semaphore(2)

        async def produce(n: int) -> None:
            async with limit:
                result = await work(n)
            async with lock:
                await queue.put(result)

        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(produce(n))
            return [await queue.get() for _ in range(3)]

    player = body_of(code)
    for id in ("s2", "s1", "s3"):
        player.complete(id, int(id[1:]))
    assert returned(player) == [2, 1, 3]
    player.check_every_prefix()


# --- timers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [30, 0.001, 0.1, 86_400.5, 0.0000001])
def test_a_timer_is_a_wait_of_its_length_rounded_up(seconds: float) -> None:
    async def code(_: Any) -> None:
        await asyncio.sleep(seconds)

    (call,) = body_of(code).body.open.values()
    assert isinstance(call, WaitCall)
    assert call.due_in == max(1, round(seconds * 1000))


def test_a_cancelled_timer_is_dropped() -> None:
    async def code(work: Any) -> None:
        timer = asyncio.get_running_loop().call_later(60, print, "never")
        await work(1)
        timer.cancel()
        timer.cancel()
        await work(2)

    player = body_of(code)
    player.complete("s1", 1)
    assert player.body.dropped == {"w1"}
    player.check_every_prefix()


def test_many_timeouts_leave_nothing_open_but_what_is_dropped() -> None:
    async def code(work: Any) -> None:
        for n in range(50):
            async with asyncio.timeout(30):
                await work(n)

    player = body_of(code)
    for n in range(50):
        player.complete(f"s{n + 1}", n)
        player.body.withdrawn(list(player.body.dropped))
    assert returned(player) is None
    assert not player.body.open


# --- no outside ---------------------------------------------------------------------------------


OUTSIDE: dict[str, Callable[[], Awaitable[Any]]] = {
    "run_in_executor": lambda: asyncio.to_thread(print),
    "getaddrinfo": lambda: asyncio.get_running_loop().getaddrinfo("localhost", 80),
    "create_connection": lambda: asyncio.open_connection("localhost", 80),
    "subprocess_exec": lambda: asyncio.create_subprocess_exec("true"),
    "sock_connect": lambda: asyncio.get_running_loop().sock_connect(socket.socket(), ("", 1)),
    "create_server": lambda: asyncio.start_server(print, port=1),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_reaches_outside_is_an_error_that_names_the_call(name: str) -> None:
    async def code(_: Any) -> None:
        await OUTSIDE[name]()

    assert f"loop.{name}()" in str(raised(body_of(code)))


def test_every_method_of_a_loop_is_either_ours_or_refused() -> None:
    inherited = {
        name
        for name, _ in inspect.getmembers(asyncio.AbstractEventLoop, callable)
        if not name.startswith("_") and getattr(BodyLoop, name) is getattr(asyncio.AbstractEventLoop, name)
    }
    assert not inherited, f"not decided: {inherited}"
    assert all(hasattr(asyncio.AbstractEventLoop, name) for name in _REFUSED.split())


def test_as_completed_over_coroutines_names_ours() -> None:
    async def code(work: Any) -> None:
        calls = [work(1), work(2)]
        try:
            for each in asyncio.as_completed(calls):
                await each
        finally:
            for call in calls:
                call.close()

    assert "worker.as_completed()" in str(raised(body_of(code)))


def test_as_completed_over_tasks_is_fine() -> None:
    async def code(work: Any) -> list[int]:
        tasks = [asyncio.create_task(work(n)) for n in range(3)]
        return [await each for each in asyncio.as_completed(tasks)]

    player = body_of(code)
    for id in ("s3", "s1", "s2"):
        player.complete(id, int(id[1:]))
    assert returned(player) == [3, 1, 2]


# --- the loop around it -------------------------------------------------------------------------


async def test_the_worker_loop_is_current_again_afterwards() -> None:
    async def code(work: Any) -> None:
        await work(1)

    outer, hooks = asyncio.get_running_loop(), sys.get_asyncgen_hooks()
    done = threading.Event()

    def work() -> None:
        body_of(code)
        assert asyncio.get_running_loop() is outer
        assert sys.get_asyncgen_hooks() == hooks
        done.set()

    outer.call_soon(work)
    await asyncio.sleep(0)
    assert done.is_set()


def test_an_abandoned_generator_is_finished_inside_the_body() -> None:
    async def code(work: Any) -> list[str]:
        seen: list[str] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                seen.append(f"closed {await work(5)}")

        async for _ in numbers():
            break
        await work(6)
        return seen

    player = body_of(code)
    assert sorted(short(call.label) for call in player.body.open.values()) == ["step work"] * 2
    player.complete("s2", 5)
    player.complete("s1", 6)
    assert returned(player) == ["closed 5"] or returned(player) == ["closed 6"]
    player.check_every_prefix()
