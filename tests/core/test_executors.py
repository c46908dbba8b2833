"""Executors tell a listener how a step's code ended, once, and when nothing of it runs any more."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

from worker.executors.asynchronous import AsyncExecutor
from worker.executors.base import Code, Ended, Error, Interrupted, TimedOut, Value
from worker.executors.threads import ThreadExecutor


class Told:
    """What was heard, in order."""

    def __init__(self) -> None:
        self.heard: list[Ended | str] = []
        self.has_ended = asyncio.Event()
        self.is_over = asyncio.Event()

    def ended(self, ended: Ended) -> None:
        self.heard.append(ended)
        self.has_ended.set()

    def over(self) -> None:
        self.heard.append("over")
        self.is_over.set()


def run_async(fn: Callable[..., Any], told: Told, *, timeout: float | None = None) -> Any:
    return AsyncExecutor().start(Code(fn, (), {}, Context()), timeout=timeout, listener=told)


async def test_code_that_returns_is_told_in_the_same_turn_as_that_it_is_over() -> None:
    told = Told()

    async def code() -> int:
        return 1

    run_async(code, told, timeout=60)
    assert told.heard == []  # nothing before start() has returned
    await asyncio.sleep(0)
    assert told.heard == [Value(1), "over"]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_code_raises_is_its_end_and_no_more(error: BaseException) -> None:
    told = Told()

    async def code() -> None:
        raise error

    run_async(code, told)
    await told.is_over.wait()
    assert told.heard == [Error(error), "over"]


async def test_code_interrupted_before_its_first_line_was_interrupted() -> None:
    told, began = Told(), []

    async def code() -> None:
        began.append(1)

    run_async(code, told).interrupt()
    await told.is_over.wait()
    assert told.heard == [Interrupted(), "over"] and not began


async def test_code_that_ends_though_it_was_interrupted_has_ended() -> None:
    told, asleep = Told(), asyncio.Event()

    async def code() -> str:
        asleep.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "tidy"
        return "late"

    execution = run_async(code, told)
    await asleep.wait()
    execution.interrupt()
    await told.is_over.wait()
    assert told.heard == [Value("tidy"), "over"]


async def test_code_that_cancels_itself_has_failed() -> None:
    told = Told()

    async def code() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    run_async(code, told)
    await told.is_over.wait()
    (ended, over) = told.heard
    assert isinstance(ended, Error) and isinstance(ended.error, asyncio.CancelledError) and over == "over"


async def test_code_out_of_time_is_told_once_and_is_over_when_its_finally_is() -> None:
    told, tidying, may_end = Told(), asyncio.Event(), asyncio.Event()

    async def code() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            tidying.set()
            await may_end.wait()

    run_async(code, told, timeout=0.01)
    await tidying.wait()
    assert told.heard == [TimedOut()]
    may_end.set()
    await told.is_over.wait()
    assert told.heard == [TimedOut(), "over"]


async def test_a_thread_out_of_time_is_told_once_and_is_over_when_it_has_ended() -> None:
    told, may_end = Told(), threading.Event()
    executor = ThreadExecutor(1)
    executor.start(Code(may_end.wait, (), {}, Context()), timeout=0.01, listener=told)
    await told.has_ended.wait()
    assert told.heard == [TimedOut()]
    may_end.set()
    await told.is_over.wait()
    assert told.heard == [TimedOut(), "over"]
    await executor.close()


async def test_a_thread_tells_its_value_on_the_loop() -> None:
    told, executor = Told(), ThreadExecutor(1)
    executor.start(Code(lambda: 7, (), {}, Context()), timeout=60, listener=told)
    await told.is_over.wait()
    assert told.heard == [Value(7), "over"]
    await executor.close()
