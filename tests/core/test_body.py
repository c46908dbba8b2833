"""What a workflow body sees of its steps, its time and its run."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import contextlib
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.core.player import CREATED_AT, RUN_ID, Approval, Player, raised, returned
from worker.core.calls import (
    AttributesCall,
    ContinuedAsNew,
    HookCall,
    Raised,
    StepCall,
    Stuck,
)
from worker.core.records import FATAL, USER_ERROR
from worker.sdk.calls import (
    as_completed,
    continue_as_new,
    get_workflow_metadata,
    is_replaying,
    logger,
    now,
    random,
    remove_attributes,
    set_attributes,
    time_ns,
    uuid4,
)
from worker.sdk.errors import (
    FatalError,
    TypeValidationError,
)
from worker.sdk.registry import Workflows
from world_redis.events import EventType
from world_redis.hooks import HookAddress, address_of

pytestmark = pytest.mark.usefixtures("no_body_is_left")


# --- steps ----------------------------------------------------------------------------------------


def test_a_step_is_issued_when_its_coroutine_first_runs() -> None:
    wf = Workflows()

    @wf.step
    async def charge(amount: int) -> int: ...

    @wf.workflow
    async def renew() -> int:
        late = charge(1)
        early = asyncio.create_task(charge(2))
        return await late + await early

    player = Player(renew)
    calls = [call for call in player.body.open.values() if isinstance(call, StepCall)]
    assert [(call.id, call.input) for call in calls] == [
        ("s1", b'{"amount":1}'),
        ("s2", b'{"amount":2}'),
    ]


def test_a_step_that_is_never_awaited_never_runs() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.step
    async def other() -> None: ...

    @wf.workflow
    async def renew() -> None:
        forgotten = charge()
        try:
            await other()
        finally:
            forgotten.close()

    assert Player(renew).open == ["step other (s1)"]


def test_the_body_sees_the_decoded_result() -> None:
    wf = Workflows()

    @wf.step
    async def pair() -> tuple[int, str]: ...

    @wf.workflow
    async def renew() -> str:
        return repr(await pair())

    player = Player(renew)
    player.complete("s1", (1, "a"))
    assert returned(player) == "(1, 'a')"


def test_arguments_are_recorded_when_the_call_is_issued() -> None:
    wf = Workflows()

    @wf.step
    async def keep(items: list[int]) -> None: ...

    @wf.workflow
    async def renew() -> None:
        items = [1]
        task = asyncio.create_task(keep(items))
        await asyncio.sleep(0)
        items.append(2)
        await task

    (call,) = Player(renew).body.open.values()
    assert isinstance(call, StepCall)
    assert call.input == b'{"items":[1]}'


def test_options_of_a_call_are_recorded_with_it() -> None:
    wf = Workflows()

    @wf.step(queue="slow")
    def crunch() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await crunch.with_options(timeout="90s", queue="gpu")()

    (call,) = Player(renew).body.open.values()
    assert isinstance(call, StepCall)
    assert (call.queue, call.options) == ("gpu", {"timeout": 90_000})


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("declined"), "ValueError: declined"),
        (KeyError("sku"), "KeyError: 'sku'"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_exhausted_step_raises_fatal_error_with_its_cause(error: Exception, said: str) -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> list[str]:
        try:
            await charge()
        except FatalError as fatal:
            return [repr(fatal.__cause__), str(fatal)]
        return []

    player = Player(renew)
    player.fail("s1", error)
    cause, text = returned(player)
    assert cause == repr(error)
    assert text.endswith(f"charge failed in its last attempt: {said}")


def test_an_error_that_is_not_retried_is_raised_as_itself() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> str:
        with contextlib.suppress(KeyError):
            await charge()
        return "caught"

    player = Player(renew)
    player.fail("s1", KeyError("card"), FATAL)
    assert returned(player) == "caught"


def test_arguments_that_do_not_fit_are_an_error_in_the_body() -> None:
    wf = Workflows()

    @wf.step
    async def charge(amount: int) -> None: ...

    @wf.workflow
    async def renew() -> None:
        await charge("many")  # type: ignore[arg-type]

    assert isinstance(raised(Player(renew)), TypeValidationError)


def test_an_uncaught_error_fails_the_run() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        raise ValueError("no")

    player = Player(renew)
    assert repr(raised(player)) == "ValueError('no')"
    assert isinstance(player.body.outcome, Raised)
    assert player.body.outcome.code == USER_ERROR


def test_a_result_that_cannot_be_recorded_fails_the_run() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> Any:
        return object()

    assert "renew() result" in str(raised(Player(renew)))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_control_flow_errors_end_the_body_and_not_the_worker(error: type[BaseException]) -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        raise error("bye")

    assert error.__name__ in str(raised(Player(renew)))


# --- time, randomness, logging --------------------------------------------------------------------


def test_time_moves_with_delivered_events_only() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> list[int]:
        times = [time_ns()]
        await charge()
        times += [time_ns(), round(now().timestamp() * 1000)]
        return times

    player = Player(renew)
    player.now = CREATED_AT + 5_000
    player.complete("s1")
    first, second, third = returned(player)
    assert first == CREATED_AT * 1_000_000
    assert second == (CREATED_AT + 5_001) * 1_000_000
    assert third == CREATED_AT + 5_001


def test_time_never_runs_backwards() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> int:
        await charge()
        return time_ns()

    player = Player(renew)
    player.now = CREATED_AT - 60_000
    player.complete("s1")
    assert returned(player) == CREATED_AT * 1_000_000


def test_randomness_comes_from_the_seed_and_not_from_the_run_id() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> list[str]:
        return [str(random().random()), str(uuid4()), Approval.wait().token]

    one, two = Player(renew), Player(renew)
    assert returned(one) == returned(two)
    assert returned(one)[1][14] == "4"


def test_a_default_hook_token_locates_its_run() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        async with Approval.wait() as first, Approval.wait() as second:
            await first
            await second

    tokens = [c.token for c in Player(renew).body.open.values() if isinstance(c, HookCall)]
    assert [address_of(token) for token in tokens] == [
        HookAddress(RUN_ID, "h1"),
        HookAddress(RUN_ID, "h2"),
    ]
    secrets = {token.rpartition(".")[2] for token in tokens}
    assert len(secrets) == 2
    assert all(len(secret) >= 22 for secret in secrets)


def test_metadata_is_that_of_the_run() -> None:
    wf = Workflows()

    @wf.workflow(version=3)
    async def renew() -> list[Any]:
        about = get_workflow_metadata()
        return [about.run_id, about.version, about.started_at, about.parent_run_id]

    started = datetime.fromtimestamp(CREATED_AT / 1000, UTC)
    assert returned(Player(renew)) == [RUN_ID, 3, started, None]


def test_a_replayed_body_logs_nothing_twice(caplog: pytest.LogCaptureFixture) -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> list[bool]:
        seen = [is_replaying()]
        logger.warning("before")
        await charge()
        seen.append(is_replaying())
        logger.warning("between")
        await charge()
        logger.warning("after")
        return [*seen, is_replaying()]

    with caplog.at_level(logging.WARNING, "worker.user"):
        player = Player(renew)
        assert [record.message for record in caplog.records] == ["before"]
        assert caplog.records[0].__dict__["run_id"] == RUN_ID
        caplog.clear()
        player.complete("s1")
        player.complete("s2")
        assert [record.message for record in caplog.records] == ["between", "after"]
        assert returned(player) == [False, False, False]
        caplog.clear()
        player.write(EventType.RUN_COMPLETED)
        assert player.replay().outcome != player.body.outcome  # is_replaying() told the difference
        assert not caplog.records
    assert not is_replaying()


# --- the run itself -------------------------------------------------------------------------------


def test_attributes_are_recorded_in_order_with_the_calls() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await set_attributes({"state": "open"})
        await charge()
        await remove_attributes("state")

    player = Player(renew)
    body = player.build()
    body.run()
    assert [call.id for call in body.fresh] == ["a1", "s1"]
    assert isinstance(body.fresh[0], AttributesCall)
    player.complete("s1")
    changes = [event.data for event in player.log if event.type is EventType.ATTR_SET]
    assert len(changes) == 2
    player.check_every_prefix()


@pytest.mark.parametrize("given", [{"$x": "1"}, {"": "1"}, {"x": "1" * 257}, {"x" * 257: "1"}])
def test_attributes_outside_the_limits_are_refused(given: dict[str, str]) -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        await set_attributes(given)

    assert isinstance(raised(Player(renew)), ValueError)


def test_continue_as_new_ends_the_body_with_the_next_input() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew(n: int, note: str = "none") -> None:
        try:
            await charge()
        except Exception:
            return
        await set_attributes({"stage": "two", "draft": "yes"})
        await remove_attributes("draft")
        continue_as_new(n + 1)

    player = Player(renew, 1)
    player.complete("s1")
    attributes = {"stage": "two", "draft": None}
    assert player.body.outcome == ContinuedAsNew(b'{"n":2,"note":"none"}', attributes)
    assert player.replay().outcome == player.body.outcome


def test_a_body_starts_in_a_fresh_context() -> None:
    import contextvars

    wf = Workflows()
    flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="plain")

    @wf.workflow
    async def renew() -> str:
        return flavour.get()

    token = flavour.set("of the delivery")
    assert returned(Player(renew)) == "plain"
    flavour.reset(token)


# --- driving --------------------------------------------------------------------------------------


async def test_a_body_may_be_driven_inside_a_task_of_the_worker_loop() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        own = asyncio.current_task()
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        assert own is asyncio.current_task()
        return "done"

    outer = asyncio.current_task()
    player = Player(renew)
    assert returned(player) == "done"
    player.replay()
    assert asyncio.current_task() is outer is not None
    await asyncio.sleep(0)
    assert asyncio.get_running_loop().is_running()


async def test_a_task_that_drives_a_body_goes_on_after_the_body_was_interrupted() -> None:
    wf = Workflows()

    @wf.workflow
    async def spin() -> None:
        while True:
            pass

    outer = asyncio.current_task()
    player = Player(spin, stuck_after=0.2)
    assert isinstance(player.body.problem, Stuck)
    assert asyncio.current_task() is outer is not None
    await asyncio.sleep(0)


def test_as_completed_answers_in_the_order_of_the_ends() -> None:
    wf = Workflows()

    @wf.step
    async def work(n: int) -> int: ...

    @wf.workflow
    async def renew() -> list[int]:
        first = [await each for each in as_completed(work(n) for n in (1, 2, 3))]
        async for task in as_completed([work(4), work(5)]):
            first.append(task.result())
        return first

    player = Player(renew)
    for id in ("s3", "s1", "s2", "s5", "s4"):
        player.complete(id, int(id[1:]))
    assert returned(player) == [3, 1, 2, 5, 4]
    player.check_every_prefix()


def test_as_completed_can_be_limited_in_time() -> None:
    wf = Workflows()

    @wf.step
    async def work(n: int) -> int: ...

    @wf.workflow
    async def renew() -> list[Any]:
        got: list[Any] = []
        try:
            for each in as_completed([work(1), work(2)], timeout=5):
                got.append(await each)
        except TimeoutError:
            got.append("late")
        return got

    player = Player(renew)
    player.complete("s2", 2)
    player.fire("w1")
    assert returned(player) == [2, "late"]
