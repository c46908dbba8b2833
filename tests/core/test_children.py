"""Runs started by a body."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
from typing import Any

import pytest

from tests.core.player import RUN_ID, Player, raised, returned, short
from worker.core.calls import (
    ChildCall,
    Returned,
)
from worker.core.records import CANCELLED, USER_ERROR
from worker.sdk.calls import (
    set_attributes,
    start_child,
)
from worker.sdk.errors import (
    RunCancelledError,
    RunTimeoutError,
    WorkflowRunFailedError,
)
from worker.sdk.registry import Workflows
from world_redis.ids import child_run_id

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def test_a_child_is_awaited_like_a_step() -> None:
    wf = Workflows()

    @wf.workflow(name="part", version=1)
    async def old_part(n: int) -> int: ...

    @wf.workflow(name="part", version=2)
    async def part(n: int, factor: int = 2) -> int: ...

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> int:
        await charge()
        return await old_part(3)

    player = Player(renew)
    player.complete("s1")
    (call,) = player.body.open.values()
    assert isinstance(call, ChildCall)
    assert (call.id, call.name, call.version) == ("s2", "part", 2)
    assert call.run_id == child_run_id(RUN_ID, "s2")
    assert call.input == b'{"n":3,"factor":2}'
    player.complete("s2", 6)
    assert returned(player) == 6
    player.check_every_prefix()


@pytest.mark.parametrize(
    ("code", "failure", "expected"),
    [
        (USER_ERROR, ValueError("no"), WorkflowRunFailedError),
        (CANCELLED, RunCancelledError("wrun_1", "why"), RunCancelledError),
    ],
)
def test_the_end_of_a_child_is_told_apart(code: str, failure: Exception, expected: type[Exception]) -> None:
    wf = Workflows()

    @wf.workflow
    async def part() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await part()

    player = Player(renew)
    player.fail("s1", failure, code)
    error = raised(player)
    assert type(error) is expected
    if isinstance(error, WorkflowRunFailedError):
        assert error.error_code == USER_ERROR
        assert repr(error.__cause__) == "ValueError('no')"


def test_a_started_child_goes_on_beside_its_parent() -> None:
    wf = Workflows()

    @wf.workflow
    async def part(n: int) -> int: ...

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> list[Any]:
        child = start_child(part.with_options(detach=True, queue="gpu", timeout="1m"), 1)
        late = None
        try:
            await child.return_value(timeout=5)
        except RunTimeoutError:
            late = child.run_id
        await charge()
        return [late, await child.return_value()]

    player = Player(renew)
    call = player.body.open["s1"]
    assert isinstance(call, ChildCall)
    assert (call.detach, call.queue, call.timeout, call.resolved) == (True, "gpu", 60_000, True)
    player.fire("w1")
    player.complete("s1", 7)
    player.complete("s2")
    assert returned(player) == [child_run_id(RUN_ID, "s1"), 7]
    player.check_every_prefix()


def test_a_child_started_last_is_still_recorded() -> None:
    wf = Workflows()

    @wf.workflow
    async def part() -> None: ...

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> None:
        task = asyncio.create_task(charge())
        await asyncio.sleep(0)
        start_child(part)
        await set_attributes({"state": "done"})
        task.cancel()

    body = Player(renew).build()
    body.run()
    assert [short(call.label) for call in body.fresh] == ["child part", "attributes"]
    assert isinstance(body.outcome, Returned)


@pytest.mark.parametrize("options", [{"delay": "1h"}, {"idempotency_key": "x"}])
def test_options_a_child_cannot_have_are_refused(options: dict[str, Any]) -> None:
    wf = Workflows()

    @wf.workflow
    async def part() -> None: ...

    @wf.workflow
    async def renew() -> None:
        start_child(part.with_options(**options))

    assert isinstance(raised(Player(renew)), ValueError)
