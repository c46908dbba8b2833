"""``worker runs show`` answers, for each step of a run: who owns it, until when, and what rescues it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
from click.testing import CliRunner

from tests.lua.kit import LEASE, START_OF_TIME, A, E, Session, StoreKit
from tests.ops.test_fleet import announce
from worker.cli.main import cli
from worker.core.records import EXHAUSTED, Failed, HookCreated, StepCreated, StepRetrying, pack
from world_redis.ids import child_run_id, long_id, new_run_id
from world_redis.messages import Kind
from world_redis.transition import ChildStart, Decision, Fact, Send
from world_redis.world import RedisWorld

Scene = Callable[[StoreKit], Awaitable[str]]


def created(id: str, name: str, queue: str = "", child: str = "") -> Decision:
    record = pack(StepCreated(name, b"{}", queue, {}, child_run_id=child, version=1))
    return Decision(E.STEP_CREATED, id, record, mode="child" if child else "")


async def all_kinds(kit: StoreKit) -> str:
    """One step of every kind: inline, queued, running from the queue, retrying, a child, one without its
    message; a timer and a hook beside them."""
    session = await kit.session()
    child = child_run_id(session.run_id, "s5")
    fields: dict[str, str | int | bytes] = {
        "workflow": "ship",
        "queue": "default",
        "parent": session.run_id,
        "parent_step": "s5",
    }
    await session.send(
        decisions=[
            created("s1", "charge"),
            Decision(E.STEP_STARTED, "s1", mode="inline"),
            created("s2", "render", "side"),
            created("s3", "mail"),
            created("s4", "fetch"),
            created("s5", "ship", child=child),
            created("s6", "lost"),
            Decision(E.WAIT_CREATED, "w1", due_in=60_000),
            Decision(E.HOOK_CREATED, "h1", pack(HookCreated("token-h1", b"", "Go")), token="token-h1"),
        ],
        children=[ChildStart(child, "s5", fields, b"{}", "default", b"first")],
        sends=[
            Send(Kind.STEP, "s2", "side", b"step"),
            Send(Kind.STEP, "s3", "default", b"step"),
            Send(Kind.STEP, "s4", "default", b"step"),
            Send(Kind.RUN, "timer", "default", due_in=60_000),
        ],
    )
    taken = {delivery.key: delivery for delivery in await kit.take("worker-b")}
    claims = {key: await kit.claim("worker-b", taken[key]) for key in ("s3", "s4")}
    assert {claim.answer for claim in claims.values()} == {A.OK}
    step = Session(kit, session.run_id, taken["s4"], "worker-b", seq=1)
    again, record = Send(Kind.STEP, "s4", "default", b"step"), pack(StepRetrying(b"", 1, True))
    retry = Fact(E.STEP_RETRYING, "s4", record, epoch=claims["s4"].epoch, due_in=5_000, send=again)
    await step.send(facts=[retry], settles=[taken["s4"].held])
    await kit.clock.advance(LEASE // 6)
    return session.run_id


async def _owner_gone(kit: StoreKit) -> str:
    session = await kit.session()
    await session.send(decisions=[created("s1", "charge"), Decision(E.STEP_STARTED, "s1", mode="inline")])
    await kit.queue().defer(0, [session.held])
    return session.run_id


async def _recovered_twice(kit: StoreKit) -> str:
    session = await kit.session()
    await session.send(decisions=[created("s1", "charge"), Decision(E.STEP_STARTED, "s1", mode="inline")])
    for number in (1, 2):
        await kit.lease_passes()
        (delivery,) = [each for each in await kit.take(f"heir-{number}") if each.kind is Kind.RUN]
        heir = Session(kit, session.run_id, delivery, f"heir-{number}", seen=1, position=session.position)
        await heir.send(decisions=[Decision(E.STEP_STARTED, "s1", mode="inline")])
    return session.run_id


async def _failed(kit: StoreKit) -> str:
    session = await kit.session()
    await session.send(decisions=[created("s1", "charge"), Decision(E.STEP_STARTED, "s1", mode="inline")])
    end = Fact(E.STEP_FAILED, "s1", pack(Failed("FATAL", b"")), epoch=(session.epochs or {})["s1"])
    await session.send(facts=[end])
    return session.run_id


async def _exhausted(kit: StoreKit) -> str:
    """Two attempts raised; a drain between them used none."""
    session = await kit.session()
    send = Send(Kind.STEP, "s1", "default", b"step")
    await session.send(decisions=[created("s1", "charge")], sends=[send])
    for end in ("drain", "error", "exhausted"):
        (taken,) = [each for each in await kit.take("c2") if each.key == "s1"]
        step = Session(kit, session.run_id, taken, "c2", seq=1)  # its claim
        claim = await kit.claim("c2", taken)
        if end == "exhausted":
            fact = Fact(E.STEP_FAILED, "s1", pack(Failed(EXHAUSTED, b"")), epoch=claim.epoch)
        else:
            record = pack(StepRetrying(b"", 0, end == "error"))
            fact = Fact(E.STEP_RETRYING, "s1", record, epoch=claim.epoch, cause=end, due_in=0, send=send)
        await step.send(facts=[fact], settles=[step.held])
    return session.run_id


async def _in_an_amnesty(kit: StoreKit) -> str:
    """The server came back long after the lease had ended; five seconds of the amnesty are left."""
    session = await kit.session()
    await session.send(decisions=[created("s1", "charge"), Decision(E.STEP_STARTED, "s1", mode="inline")])
    await kit.clock.advance(10 * LEASE)
    record = kit.world.keys.partition(0)[0]
    await kit.world.command("HSET", record, "amnesty", kit.clock.now + 5_000)
    return session.run_id


async def _refused(kit: StoreKit) -> str:
    run_id = await kit.start()
    for build in ("b1", "b2"):
        await kit.queue(build).refuse(
            run_id,
            [(await kit.take_one(build)).held],
            reason="unknown_workflow",
            detail="no workflow 'order'",
            build=build,
            park_after=600_000,
            back_in=2_000,
        )
        await kit.clock.advance(2_000)
    return run_id


class Shown:
    """What the command prints, as text and as JSON."""

    def __init__(self, run_id: str) -> None:
        told = CliRunner().invoke(cli, ["runs", "show", run_id])
        assert told.exit_code == 0, told.output
        self.text = told.stdout
        self.json: dict[str, Any] = json.loads(
            CliRunner().invoke(cli, ["runs", "show", run_id, "--json"]).stdout
        )

    def line(self, start: str) -> str:
        """The line of this step, message, wait or hook, with single spaces."""
        lines = [" ".join(line.split()) for line in self.text.splitlines()]
        return next(line for line in lines if line.startswith(start))

    def message(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in self.json["messages"] if each["key"] == key)
        return found


@pytest.fixture
def show(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], Shown]:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", redis_url)
    monkeypatch.setenv("WORKFLOW_NAMESPACE", namespace)
    monkeypatch.setenv("COLUMNS", "300")

    async def prepare(scene: Scene) -> str:
        async with RedisWorld(redis_url, namespace=namespace) as world:
            kit = StoreKit(world, redis_url)
            await kit.clock.set(START_OF_TIME)
            return await scene(kit)

    return lambda scene: Shown(asyncio.run(prepare(scene)))


def test_every_step_shows_its_owner_its_lease_and_what_it_waits_for(
    show: Callable[[Scene], Shown],
) -> None:
    shown = show(all_kinds)
    owner = shown.message("wake")
    step, taken = shown.json["steps"][0], shown.message("s3")
    left = (LEASE - LEASE // 6) / 1000
    assert (step["owner"], step["owner_number"], step["epoch"] > 0) == (owner["id"], 1, True)
    assert shown.line("step 1 ") == (
        f"step 1 charge running inline {owner['id']}#1 c1 {left:.1f} s {step['epoch']} 1 0 0 its code"
    )
    assert shown.line("step 2 ") == "step 2 render created 0 0 0 a worker of queue side"
    third = shown.json["steps"][2]
    assert shown.line("step 3 ") == (
        f"step 3 mail running queue {taken['id']}#1 worker-b {left:.1f} s {third['epoch']} 1 0 0 its code"
    )
    assert "step 4 fetch retrying" in shown.line("step 4 ")
    assert "1 1 0 its next attempt at" in shown.line("step 4 "), "one start, one error, no crash"
    child = shown.json["steps"][4]["child_run_id"]
    assert shown.line("step 5 ").endswith(f"the end of {child}")
    assert shown.line("step 6 ").endswith("its message, which the next wake sends again")


def test_the_runs_messages_timers_hooks_and_rescue_are_shown(show: Callable[[Scene], Shown]) -> None:
    shown = show(all_kinds)
    states = {message["key"]: message["state"] for message in shown.json["messages"]}
    assert states == {
        "wake": "in flight",
        "s2": "ready",
        "s3": "in flight",
        "s4": "delayed",
        "timer": "delayed",
        "rescue": "delayed",
    }
    assert [wait["id"] for wait in shown.json["waits"]] == [long_id("w1")]
    assert [hook["token"] for hook in shown.json["hooks"]] == ["token-h1"]
    assert shown.line("wait 1 ") and shown.line("hook 1 ") == "hook 1 Go 0 token-h1"
    assert "rescue: armed, looks again at" in shown.text
    for message in shown.json["messages"]:
        line = shown.line(message["id"])
        assert message["state"] in line and message["queue"] in line and message["key"] in line
        assert message["until"] or message["state"] == "ready", "due time, or the end of the lease"


def test_a_step_whose_owner_is_gone_says_what_brings_it_home(show: Callable[[Scene], Shown]) -> None:
    shown = show(_owner_gone)
    line = shown.line("step 1 ")
    assert "lapsed" in line and line.endswith("its message to be handed out again, or the rescue")
    assert "rescue: armed" in shown.text


def test_a_recovered_step_shows_the_present_owner_and_its_crashes(show: Callable[[Scene], Shown]) -> None:
    shown = show(_recovered_twice)
    owner = shown.json["steps"][0]
    assert (owner["owner_number"], owner["starts"], owner["errors"], owner["crashes"]) == (3, 3, 0, 2)
    assert f"{owner['owner']}#3 heir-2" in shown.line("step 1 ")


def test_an_ended_step_shows_no_owner_and_waits_for_nothing(show: Callable[[Scene], Shown]) -> None:
    shown = show(_failed)
    (step,) = shown.json["steps"]
    assert (step["state"], shown.json["waits_for"]) == ("failed", [""])
    assert "#" not in shown.line("step 1 ") and " s " not in shown.line("step 1 "), "no owner, no lease"
    assert "rescue: not armed (nothing runs)" in shown.text


def test_the_last_attempt_of_an_exhausted_step_is_counted(show: Callable[[Scene], Shown]) -> None:
    (step,) = show(_exhausted).json["steps"]
    assert (step["state"], step["starts"], step["errors"], step["crashes"]) == ("failed", 3, 2, 0)


def test_in_an_amnesty_the_deadline_and_the_lease_left_agree(show: Callable[[Scene], Shown]) -> None:
    shown = show(_in_an_amnesty)
    (step,), message = shown.json["steps"], shown.message("wake")
    now = START_OF_TIME + 10 * LEASE
    left = datetime.fromisoformat(message["until"]).timestamp() * 1000 - now
    assert step["owner_live"] and left == step["lease_left"] * 1000 == 5_000 + LEASE / 2


def test_a_run_nobodys_code_knows_says_since_when_and_by_whom(show: Callable[[Scene], Shown]) -> None:
    shown = show(_refused)
    warning = shown.line("warning: refused")
    assert warning.startswith("warning: refused since 22:13:20 UTC by builds b1 b2: no worker knows its code")
    assert "WORKFLOW_PARK_AFTER_SECONDS" in warning
    found = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)
    (finding,) = [each for each in found if each["check"] == "refused"]
    assert finding["verdict"] == "warning" and "(order): refused since 22:13:20" in finding["detail"]


@pytest.mark.parametrize(
    ("about", "served"),
    [
        ({}, True),
        ({"ago": 40}, False),
        ({"ago": 40, "lease": 60.0}, True),
        ({"draining": True}, False),
        ({"queues": ["other"]}, False),
    ],
)
def test_a_run_whose_queue_no_live_worker_serves_says_so(
    show: Callable[[Scene], Shown], about: dict[str, Any], served: bool
) -> None:
    async def scene(kit: StoreKit) -> str:
        await announce(kit.world, "w1", **about)
        return await kit.start()

    warning = "no live worker takes from queue 'default'"
    assert (warning not in show(scene).text) == served
    assert show(_ended).json["warnings"] == [], "who has ended waits for nobody"


async def _ended(kit: StoreKit) -> str:
    run_id = await kit.start(run_id=new_run_id(0))
    assert await kit.runs.terminate(run_id, pack(Failed("CANCELLED", b"")), retention_ms=1000) is A.OK
    return run_id
