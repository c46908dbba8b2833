"""Dropping a live body: user code may run, but it decides nothing and leaves no noise."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import contextlib
import gc
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.core.player import Player
from worker.runtime import teardown
from worker.sdk.calls import logger, now, patched, random, set_attributes, sleep, start_child, uuid4
from worker.sdk.errors import BodyDropped, InternalError
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows

pytestmark = pytest.mark.usefixtures("no_body_is_left")

wf = Workflows()


@dataclass
class Note(BaseHook):
    """A payload that says nothing."""


@wf.step
async def work(n: int = 0) -> int: ...


@wf.workflow
async def part() -> None: ...


trace: list[str] = []


def note(text: str) -> None:
    """What user code does beside the SDK, and in which thread."""
    trace.append(f"{text} in {threading.current_thread().name}")


async def with_finally() -> None:
    try:
        await work()
    finally:
        note("finally")
        await work(1)
        note("never")


async def with_except() -> None:
    try:
        await work()
    except BaseException:
        note("except")
        await work(1)
        raise


async def with_hook() -> None:
    async with Note.wait() as hook:
        await hook


async def with_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(with_finally())
        group.create_task(work(2))
        await work(3)


async def with_gather() -> None:
    await asyncio.gather(with_except(), with_finally(), sleep(5))


async def with_timeout() -> None:
    async with asyncio.timeout(10):
        await with_finally()


async def with_sleeping_finally() -> None:
    try:
        await work()
    finally:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(3)


async def with_unstarted_task() -> None:
    await work()
    task = asyncio.create_task(with_finally())
    await work()
    await task


async def with_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            note("generator")
            await work(1)

    async for _ in numbers():
        await work()


async def with_cycle() -> None:
    me = asyncio.current_task()
    try:
        await with_finally()
    except ValueError as error:
        error.me = me  # type: ignore[attr-defined]


async def stubborn_for_a_while() -> None:
    with contextlib.suppress(BaseException):
        await work()
    with contextlib.suppress(BaseException):
        await work()
    with contextlib.suppress(BaseException):
        await asyncio.Event().wait()


BODIES: list[Callable[[], Awaitable[None]]] = [
    with_finally,
    with_except,
    with_hook,
    with_group,
    with_gather,
    with_timeout,
    with_sleeping_finally,
    with_unstarted_task,
    with_generator,
    with_cycle,
    stubborn_for_a_while,
]


def play(code: Callable[[], Awaitable[None]]) -> Player:
    @Workflows().workflow(name="main")
    async def main() -> None:
        await code()

    main.registry.include(wf)
    return Player(main)


@pytest.mark.parametrize("code", BODIES, ids=lambda code: code.__name__)
def test_a_dropped_body_records_nothing_and_is_gone(
    code: Callable[[], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    player = play(code)
    if "s1" in player.body.open and code is with_unstarted_task:
        player.complete("s1", 1)
    before = (player.body.fresh, list(player.body.open), player.body.outcome)
    with caplog.at_level(logging.DEBUG):
        assert player.body.close() == 0
        player.close()
        gc.collect()
    assert (player.body.fresh, list(player.body.open), player.body.outcome) == before
    assert not caplog.records
    assert not any("never" in line for line in trace)


def test_user_code_runs_on_the_loops_thread() -> None:
    trace.clear()
    player = play(with_gather)
    player.body.close()
    assert trace == ["finally in MainThread", "except in MainThread"]  # newest task first


@pytest.mark.parametrize(
    "call",
    [
        now,
        random,
        uuid4,
        Note.wait,
        lambda: start_child(part),
        lambda: patched("x"),
        lambda: set_attributes({"a": "b"}).send(None),
        lambda: work().send(None),
        lambda: part().send(None),
        lambda: sleep(1).send(None),
        lambda: asyncio.get_running_loop().call_later(1, print),
        lambda: asyncio.get_running_loop().create_future(),
        lambda: asyncio.create_task(work()),
    ],
)
def test_every_call_raises_body_dropped(call: Callable[[], Any]) -> None:
    raised: list[type[BaseException]] = []

    async def code() -> None:
        try:
            await work()
        finally:
            try:
                call()
            except BaseException as error:
                raised.append(type(error))
                raise

    player = play(code)
    player.body.close()
    assert raised == [BodyDropped]


def test_a_coroutine_that_never_gives_up_is_kept_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = [True]

    async def code() -> None:
        while stubborn:
            with contextlib.suppress(BaseException):
                await work()

    player = play(code)
    before = len(teardown.survivors)
    assert player.body.close() == 1
    assert len(teardown.survivors) > before
    assert "test_teardown.py" in caplog.text
    assert player.body.close() == 0
    stubborn.clear()  # so that the interpreter can end it


def test_a_dropped_body_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    async def code() -> None:
        try:
            await work()
        finally:
            logger.error("from a dropped body")

    with caplog.at_level(logging.DEBUG):
        play(code).body.close()
    assert not caplog.records


def test_a_dropped_body_cannot_be_driven() -> None:
    player = play(with_finally)
    player.body.close()
    with pytest.raises(InternalError):
        player.body.run()


def test_tasks_left_over_by_a_body_that_returned_are_closed() -> None:
    trace.clear()

    async def code() -> None:
        tasks = [asyncio.create_task(with_finally())]
        await asyncio.sleep(0)
        assert not tasks[0].done()

    player = play(code)
    assert player.body.outcome is not None
    assert not player.body.fresh  # what was never recorded is not sent
    assert len(player.body.waiting_for()) == 1
    player.body.close()
    assert trace == ["finally in MainThread"]


def test_a_body_that_has_ended_goes_when_it_is_dropped_and_not_when_the_collector_comes_by() -> None:
    async def code() -> None:
        await work()

    player = play(code)
    player.complete("s1", 1)
    assert player.body.outcome is not None
    loop = weakref.ref(player.body._loop)
    gc.disable()
    try:
        player.body.close()
        Player.started.remove(player)
        del player
        assert loop() is None
    finally:
        gc.enable()
