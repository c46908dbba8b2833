"""Hooks: a run waits for somebody outside."""

import asyncio
from dataclasses import dataclass

import pytest

from tests.fundamentals.conftest import Running
from worker import BaseHook, HookNotFoundError, Workflows


@dataclass
class Approval(BaseHook):
    by: str
    granted: bool


async def test_a_run_waits_for_a_payload_that_comes_by_token(running: Running) -> None:
    """The token is what the outside needs: put it into a link, a message, a ticket."""
    wf = Workflows()
    mails: asyncio.Queue[str] = asyncio.Queue()

    @wf.step
    async def mail(token: str) -> None:
        mails.put_nowait(token)

    @wf.workflow
    async def publish() -> str:
        async with Approval.wait() as hook:
            await mail(hook.token)
            approval = await hook
        return f"published, says {approval.by}" if approval.granted else "not published"

    async with running(wf) as client:
        run = await client.start(publish)
        await client.resume(await mails.get(), Approval("Grace", granted=True))
        assert await run.return_value(timeout=10) == "published, says Grace"


async def test_a_hook_may_receive_many_payloads(running: Running) -> None:
    """`async for` takes them in the order they were sent; none is lost while the body is busy."""
    wf = Workflows()
    tokens: asyncio.Queue[str] = asyncio.Queue()

    @wf.step
    async def tell(token: str) -> None:
        tokens.put_nowait(token)

    @wf.workflow
    async def poll(votes: int) -> int:
        granted = 0
        async with Approval.wait() as hook:
            await tell(hook.token)
            async for approval in hook:
                granted += approval.granted
                votes -= 1
                if votes == 0:
                    break
        return granted

    async with running(wf) as client:
        run = await client.start(poll, 3)
        token = await tokens.get()
        for name, granted in [("a", True), ("b", False), ("c", True)]:
            await client.resume(token, Approval(name, granted))
        assert await run.return_value(timeout=10) == 2


async def test_a_token_may_be_chosen_and_belongs_to_one_live_run(running: Running) -> None:
    """An order number makes a good token; a second run that asks for it is told who has it."""
    wf = Workflows()
    opened: asyncio.Queue[str] = asyncio.Queue()

    @wf.step
    async def tell(what: str) -> None:
        opened.put_nowait(what)

    @wf.workflow
    async def wait_for(order: str) -> str:
        async with Approval.wait(token=order) as hook:
            holder = await hook.get_conflict()
            await tell("open")
            return f"waits already: {holder}" if holder else (await hook).by

    async with running(wf) as client:
        first = await client.start(wait_for, "order-7")
        await opened.get()
        second = await client.start(wait_for, "order-7")
        assert await second.return_value(timeout=10) == f"waits already: {first.run_id}"
        await client.resume("order-7", Approval("Grace", granted=True))
        assert await first.return_value(timeout=10) == "Grace"


async def test_nobody_waits_for_an_unknown_token(running: Running) -> None:
    """Whoever sends learns at once that nobody listens."""
    async with running(Workflows()) as client:
        with pytest.raises(HookNotFoundError):
            await client.resume("nobody", Approval("Grace", granted=True))
