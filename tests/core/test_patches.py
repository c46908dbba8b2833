"""Changing the code of a workflow while runs are under way."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

from typing import Any

import pytest

from tests.core.player import Player, returned
from worker.core.records import PatchRecorded, pack
from worker.sdk.calls import (
    patched,
)
from worker.sdk.registry import Workflows
from world_redis.events import EventType

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def patched_workflow() -> Any:
    """A workflow before and after a change."""
    before, after = Workflows(), Workflows()
    for wf in (before, after):
        wf.step(name="old")(_step)
        wf.step(name="new")(_step)
        wf.step(name="last")(_step)

    @before.workflow(name="renew")
    async def renew_before() -> str:
        await before.steps["old"]()
        await before.steps["last"]()
        return "old"

    @after.workflow(name="renew")
    async def renew_after() -> str:
        path = "new" if patched("change-1") else "old"
        await after.steps[path]()
        await after.steps["last"]()
        return path if patched("change-1") == (path == "new") else "inconsistent"

    return renew_before, renew_after


async def _step() -> None: ...


def test_a_new_run_takes_the_new_code_and_records_that() -> None:
    _, after = patched_workflow()
    player = Player(after)
    assert [event.id for event in player.log][2:] == ["p1", "s1"]
    player.complete("s1")
    player.complete("s2")
    assert returned(player) == "new"
    player.check_every_prefix()


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_a_run_that_passed_the_change_keeps_the_old_code(ended: int) -> None:
    before, after = patched_workflow()
    old = Player(before)
    for number in range(ended):
        old.complete(f"s{number + 1}")
    body = Player(after).build()
    body.learn(old.log)
    body.run()
    assert body.problem is None
    assert [call.label for call in body.open.values()] == [call.label for call in old.body.open.values()]


def test_code_may_stop_asking_for_a_patch() -> None:
    _, after = patched_workflow()
    wf = Workflows()
    wf.step(name="new")(_step)
    wf.step(name="last")(_step)

    @wf.workflow(name="renew")
    async def renew() -> None:
        await wf.steps["new"]()
        await wf.steps["last"]()

    patched_run = Player(after)
    patched_run.complete("s1")
    body = Player(renew).build()
    body.learn(patched_run.log)
    body.run()
    assert body.problem is None
    assert list(body.open) == ["s2"]


def test_a_patch_answered_without_the_log_misleads_and_is_no_divergence() -> None:
    before, after = patched_workflow()
    old = Player(before)
    body = Player(after).build()
    body.learn(old.log[:2])
    body.run()
    body.learn(old.log[2:])
    body.run()
    assert body.misled
    assert body.problem is None


def test_two_builds_that_record_different_patches_mislead_each_other() -> None:
    _, after = patched_workflow()
    player = Player(after)
    body = player.build()
    body.learn(player.log[:2])
    body.run()
    player.log = player.log[:2]
    player.write(EventType.PATCH_RECORDED, "p1", pack(PatchRecorded("another change")))
    body.learn(player.log[2:])
    assert body.misled
    rebuilt = player.replay()
    assert [call.id for call in rebuilt.fresh] == ["p2", "s1"]
