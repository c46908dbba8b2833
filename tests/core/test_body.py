"""What a workflow body sees of its log, and what it asks for."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.core.player import CREATED_AT, RUN_ID, Player, create_of, short
from worker.core.calls import (
    AttributesCall,
    Cancelled,
    ChildCall,
    ContinuedAsNew,
    Deadlock,
    Divergence,
    HookCall,
    Raised,
    Returned,
    Spinning,
    StepCall,
    Stuck,
    Undecodable,
    WaitCall,
)
from worker.core.records import CANCELLED, FATAL, USER_ERROR, HookReceived, pack
from worker.runtime.bodyloop import drive
from worker.sdk.calls import (
    as_completed,
    continue_as_new,
    get_workflow_metadata,
    is_replaying,
    logger,
    now,
    patched,
    random,
    remove_attributes,
    set_attributes,
    sleep,
    sleep_until,
    start_child,
    time_ns,
    uuid4,
)
from worker.sdk.errors import (
    FatalError,
    HookConflictError,
    HookDisposedError,
    InternalError,
    RunCancelledError,
    RunTimeoutError,
    TypeValidationError,
    WorkflowRunFailedError,
)
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows
from worker.sdk.values import decode_failure, encode_failure
from world_redis.events import START, EventType, Position
from world_redis.hooks import HookAddress, address_of
from world_redis.ids import child_run_id

pytestmark = pytest.mark.usefixtures("no_body_is_left")


def registry() -> Workflows:
    return Workflows()


def returned(player: Player) -> Any:
    assert isinstance(player.body.outcome, Returned), (player.body.outcome, player.body.problem)
    return player.registry.codec.decode(player.body.outcome.data)


def raised(player: Player) -> BaseException:
    assert isinstance(player.body.outcome, Raised), (player.body.outcome, player.body.problem)
    return decode_failure(player.body.outcome.data)


@dataclass
class Approval(BaseHook):
    yes: bool
    by: str = "nobody"


# --- steps --------------------------------------------------------------------------------------


def test_a_step_is_issued_when_its_coroutine_first_runs() -> None:
    wf = registry()

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
    wf = registry()

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
    wf = registry()

    @wf.step
    async def pair() -> tuple[int, str]: ...

    @wf.workflow
    async def renew() -> str:
        return repr(await pair())

    player = Player(renew)
    player.complete("s1", (1, "a"))
    assert returned(player) == "(1, 'a')"


def test_arguments_are_recorded_when_the_call_is_issued() -> None:
    wf = registry()

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
    wf = registry()

    @wf.step(queue="slow")
    def crunch() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await crunch.with_options(timeout="90s", queue="gpu")()

    (call,) = Player(renew).body.open.values()
    assert isinstance(call, StepCall)
    assert (call.queue, call.options) == ("gpu", {"timeout": 90_000})


def test_an_exhausted_step_raises_fatal_error_with_its_cause() -> None:
    wf = registry()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> str:
        try:
            await charge()
        except FatalError as error:
            return repr(error.__cause__)
        return ""

    player = Player(renew)
    player.fail("s1", ValueError("declined"))
    assert returned(player) == "ValueError('declined')"


def test_an_error_that_is_not_retried_is_raised_as_itself() -> None:
    wf = registry()

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
    wf = registry()

    @wf.step
    async def charge(amount: int) -> None: ...

    @wf.workflow
    async def renew() -> None:
        await charge("many")  # type: ignore[arg-type]

    assert isinstance(raised(Player(renew)), TypeValidationError)


def test_an_uncaught_error_fails_the_run() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        raise ValueError("no")

    player = Player(renew)
    assert repr(raised(player)) == "ValueError('no')"
    assert isinstance(player.body.outcome, Raised)
    assert player.body.outcome.code == USER_ERROR


def test_a_result_that_cannot_be_recorded_fails_the_run() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> Any:
        return object()

    assert "renew() result" in str(raised(Player(renew)))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_control_flow_errors_end_the_body_and_not_the_worker(error: type[BaseException]) -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        raise error("bye")

    assert error.__name__ in str(raised(Player(renew)))


# --- time, randomness, logging ------------------------------------------------------------------


def test_time_moves_with_delivered_events_only() -> None:
    wf = registry()

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
    wf = registry()

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
    wf = registry()

    @wf.workflow
    async def renew() -> list[str]:
        return [str(random().random()), str(uuid4()), Approval.wait().token]

    one, two = Player(renew), Player(renew)
    assert returned(one) == returned(two)
    assert returned(one)[1][14] == "4"


def test_a_default_hook_token_locates_its_run() -> None:
    wf = registry()

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
    wf = registry()

    @wf.workflow(version=3)
    async def renew() -> list[Any]:
        about = get_workflow_metadata()
        return [about.run_id, about.version, about.started_at, about.parent_run_id]

    started = datetime.fromtimestamp(CREATED_AT / 1000, UTC)
    assert returned(Player(renew)) == [RUN_ID, 3, started, None]


def test_a_replayed_body_logs_nothing_twice(caplog: pytest.LogCaptureFixture) -> None:
    wf = registry()

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


# --- waits --------------------------------------------------------------------------------------


def test_sleep_is_a_wait_of_that_length() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        await asyncio.gather(sleep("1h"), sleep(0.0001), sleep(timedelta(seconds=2)), asyncio.sleep(30))

    waits = [call for call in Player(renew).body.open.values() if isinstance(call, WaitCall)]
    assert [(wait.id, wait.due_in) for wait in waits] == [
        ("w1", 3_600_000),
        ("w2", 1),
        ("w3", 2_000),
        ("w4", 30_000),
    ]


def test_sleep_until_is_an_absolute_wait() -> None:
    wf = registry()
    moment = datetime.fromtimestamp(CREATED_AT / 1000 + 60, UTC)

    @wf.workflow
    async def renew() -> None:
        await asyncio.gather(sleep_until(moment), sleep(moment))

    waits = [call for call in Player(renew).body.open.values() if isinstance(call, WaitCall)]
    assert [wait.due_at for wait in waits] == [CREATED_AT + 60_000] * 2


def test_sleeping_for_nothing_never_becomes_a_wait() -> None:
    wf = registry()
    past = datetime.fromtimestamp(CREATED_AT / 1000 - 60, UTC)

    @wf.workflow
    async def renew() -> str:
        await sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(-1)
        await sleep_until(past)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(0)
        return "done"

    player = Player(renew)
    assert returned(player) == "done"
    assert [event.type for event in player.log] == [EventType.RUN_CREATED, EventType.RUN_STARTED]


def test_a_timeout_is_a_wait_that_interrupts() -> None:
    wf = registry()

    @wf.step
    async def slow() -> None: ...

    @wf.workflow
    async def renew() -> str:
        try:
            async with asyncio.timeout(30):
                await slow()
        except TimeoutError:
            return "late"
        return "in time"

    player = Player(renew)
    assert player.open == ["wait (w1)", "step slow (s1)"]
    player.fire("w1")
    assert returned(player) == "late"
    assert player.body.dropped == {"s1"}


def test_a_timeout_that_did_not_come_is_dropped() -> None:
    wf = registry()

    @wf.step
    async def slow() -> None: ...

    @wf.workflow
    async def renew() -> None:
        async with asyncio.timeout(30):
            await slow()
        await slow()

    player = Player(renew)
    player.complete("s1")
    assert player.body.dropped == {"w1"}
    player.body.withdrawn(["w1"])
    assert player.open == ["step slow (s2)"]
    player.fire("w1")  # it was on its way already
    player.complete("s2")
    assert returned(player) is None
    player.check_every_prefix()


def test_the_end_of_a_dropped_wait_is_skipped() -> None:
    wf = registry()

    @wf.step
    async def slow() -> None: ...

    @wf.workflow
    async def renew() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(slow(), 30)
        await slow()

    player = Player(renew)
    player.complete("s1")
    player.fire("w1")
    assert player.open == ["step slow (s2)"]
    assert player.body.problem is None
    player.check_every_prefix()


# --- hooks --------------------------------------------------------------------------------------


def test_a_hook_gives_its_payload() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> str:
        async with Approval.wait(token="order-1", metadata={"total": 3}) as hook:
            answer = await hook
            return f"{answer.yes} {answer.by} {hook.token}"

    player = Player(renew)
    (call,) = player.body.open.values()
    assert isinstance(call, HookCall)
    assert (call.token, call.chosen, call.metadata) == ("order-1", True, b'{"total":3}')
    player.receive("h1", Approval(True, "ann"))
    assert returned(player) == "True ann order-1"
    player.check_every_prefix()


def test_payloads_are_kept_until_they_are_asked_for() -> None:
    wf = registry()

    @wf.step
    async def prepare() -> None: ...

    @wf.workflow
    async def renew() -> list[str]:
        async with Approval.wait() as hook:
            await prepare()
            return [(await hook).by, (await hook).by, (await hook).by]

    player = Player(renew)
    player.receive("h1", Approval(True, "ann"))
    player.receive("h1", Approval(True, "bob"))
    player.complete("s1")
    player.receive("h1", Approval(True, "cy"))
    assert returned(player) == ["ann", "bob", "cy"]
    player.check_every_prefix()


def test_a_hook_is_iterated_until_it_is_disposed() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> list[str]:
        names = []
        hook = Approval.wait()
        async for answer in hook:
            names.append(answer.by)
            if not answer.yes:
                hook.dispose()
        hook.dispose()
        return names

    player = Player(renew)
    player.receive("h1", Approval(True, "ann"))
    player.receive("h1", Approval(False, "bob"))
    assert returned(player) == ["ann", "bob"]


def test_a_late_payload_is_skipped() -> None:
    wf = registry()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> str:
        async with Approval.wait() as hook:
            await hook
        await charge()
        with contextlib.suppress(HookDisposedError):
            await hook
            return "a payload"
        return "disposed"

    player = Player(renew)
    player.receive("h1", Approval(True))
    assert [event.type for event in player.log][-2:] == [
        EventType.HOOK_DISPOSED,
        EventType.STEP_CREATED,
    ]
    player.receive("h1", Approval(False))
    assert player.open == ["step charge (s1)"]
    player.complete("s1")
    assert returned(player) == "disposed"
    player.check_every_prefix()


def test_a_payload_is_not_lost_with_a_cancelled_awaiter() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> str:
        hook = Approval.wait()
        try:
            async with asyncio.timeout(10):
                await hook
        except TimeoutError:
            return (await hook).by
        return "early"

    player = Player(renew)
    player.fire("w1")
    player.receive("h1", Approval(True, "ann"))
    assert returned(player) == "ann"
    player.check_every_prefix()


def test_get_conflict_answers_when_the_hook_is_recorded() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> list[Any]:
        free, taken = Approval.wait(), Approval.wait(token="taken")
        found = [await free.get_conflict(), await taken.get_conflict()]
        found.append(await free.get_conflict())
        try:
            await taken
        except HookConflictError as error:
            found.append(error.conflicting_run_id)
        return found

    player = Player(renew)
    assert returned(player) == [None, "wrun_other", None, "wrun_other"]
    player.check_every_prefix()


def test_a_conflict_reaches_whoever_waits_for_a_payload() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        await Approval.wait(token="taken")

    assert isinstance(raised(Player(renew)), HookConflictError)


def test_a_payload_that_does_not_fit_is_an_error_in_the_body() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        await Approval.wait()

    player = Player(renew)
    player.move(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(b'{"yes":"perhaps"}')))
    assert isinstance(raised(player), TypeValidationError)


# --- children -----------------------------------------------------------------------------------


def test_a_child_is_awaited_like_a_step() -> None:
    wf = registry()

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
    wf = registry()

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
    wf = registry()

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
    wf = registry()

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


# --- the run itself -----------------------------------------------------------------------------


def test_attributes_are_recorded_in_order_with_the_calls() -> None:
    wf = registry()

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
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        await set_attributes(given)

    assert isinstance(raised(Player(renew)), ValueError)


def test_continue_as_new_ends_the_body_with_the_next_input() -> None:
    wf = registry()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew(n: int, note: str = "none") -> None:
        try:
            await charge()
        except Exception:
            return
        continue_as_new(n + 1)

    player = Player(renew, 1)
    player.complete("s1")
    assert player.body.outcome == ContinuedAsNew(b'{"n":2,"note":"none"}')


def test_a_body_starts_in_a_fresh_context() -> None:
    import contextvars

    wf = registry()
    flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="plain")

    @wf.workflow
    async def renew() -> str:
        return flavour.get()

    token = flavour.set("of the delivery")
    assert returned(Player(renew)) == "plain"
    flavour.reset(token)


# --- cancelling ---------------------------------------------------------------------------------


def test_a_cancel_request_runs_finally_and_its_steps() -> None:
    wf = registry()

    @wf.step
    async def ship() -> None: ...

    @wf.step
    async def refund() -> None: ...

    @wf.workflow
    async def renew() -> None:
        try:
            await ship()
        finally:
            await refund()

    player = Player(renew)
    player.cancel("customer left")
    assert player.body.cancel_requested
    assert player.open == ["step ship (s1)", "step refund (s2)"]
    assert player.body.dropped == {"s1"}
    player.cancel("again")
    assert player.body.outcome is None
    player.complete("s2")
    assert player.body.outcome == Cancelled("customer left")
    player.check_every_prefix()


def test_a_body_that_swallows_the_cancel_ends_as_it_likes() -> None:
    wf = registry()

    @wf.step
    async def ship() -> None: ...

    @wf.workflow
    async def renew() -> str:
        try:
            await ship()
        except asyncio.CancelledError:
            return "gave up"
        return "shipped"

    player = Player(renew)
    player.cancel()
    assert returned(player) == "gave up"


def test_cancelled_error_without_a_request_is_a_failure() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        raise asyncio.CancelledError

    assert "CancelledError" in str(raised(Player(renew)))


def test_a_call_cancelled_before_it_is_recorded_is_never_sent() -> None:
    wf = registry()

    @wf.step
    async def one() -> None: ...

    @wf.step
    async def two() -> None: ...

    @wf.workflow
    async def renew() -> None:
        task = asyncio.create_task(one())
        await asyncio.sleep(0)
        task.cancel()
        await two()

    player = Player(renew)
    assert player.open == ["step two (s2)"]  # its number stays used
    assert [event.id for event in player.log][2:] == ["s2"]
    player.complete("s2")
    player.check_every_prefix()


def test_a_cancelled_cancellable_step_releases_its_awaiter_when_it_has_ended() -> None:
    wf = registry()

    @wf.step(cancellable=True)
    async def reserve() -> None: ...

    @wf.step
    async def refund() -> None: ...

    @wf.workflow
    async def renew() -> str:
        try:
            async with asyncio.timeout(10):
                await reserve()
        except TimeoutError:
            await refund()
            return "refunded"
        return "reserved"

    player = Player(renew)
    player.fire("w1")
    assert player.body.held == {"s1"}
    assert player.body.dropped == set()
    assert player.open == ["step reserve (s1)"]
    player.complete("s1")
    assert player.open == ["step refund (s2)"]
    player.complete("s2")
    assert returned(player) == "refunded"
    player.check_every_prefix()


def test_the_loser_of_a_race_is_dropped_and_its_end_skipped() -> None:
    wf = registry()

    @wf.step
    async def quick() -> int: ...

    @wf.step
    async def slow() -> int: ...

    @wf.workflow
    async def renew() -> int:
        tasks = {asyncio.create_task(quick()), asyncio.create_task(slow())}
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await quick()
        return sum(task.result() for task in done)

    player = Player(renew)
    result = player.result("s2", 9)
    player.complete("s1", 4)
    assert player.body.dropped == {"s2"}
    player.move(EventType.STEP_COMPLETED, "s2", result)
    player.move(EventType.STEP_COMPLETED, "s2", result)
    assert player.open == ["step quick (s3)"]
    player.complete("s3", 0)
    assert returned(player) == 4
    player.check_every_prefix()


# --- patches ------------------------------------------------------------------------------------


def patched_workflow() -> Any:
    """A workflow before and after a change."""
    before, after = registry(), registry()
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
    wf = registry()
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


# --- ahead of the log ---------------------------------------------------------------------------


def two_steps() -> Any:
    wf = registry()

    @wf.step
    async def one() -> int: ...

    @wf.workflow
    async def renew() -> list[int]:
        hook = Approval.wait()
        first = await one()
        second = await one()
        return [first, second, time_ns(), int((await hook).yes)]

    return renew


def test_a_body_advanced_ahead_of_the_log_is_confirmed_by_it() -> None:
    player = Player(two_steps())
    body, before = player.body, player.body.position
    event = player.write(EventType.STEP_COMPLETED, "s1", b"1")
    body.advance([event._replace(slot=0, mark=b"")])
    assert [call.id for call in body.fresh] == ["s2"]
    assert body.position == before
    player.write(*create_of(body.fresh[0]))
    body.learn(player.log[body.seen :])
    body.run()
    assert body.position == Position(before.decided + 1, event.slot, event.mark)
    assert not body.misled
    assert not body.fresh
    player.complete("s2", 2)
    player.receive("h1", Approval(True))
    assert returned(player)[:2] == [1, 2]
    player.check_every_prefix()


def test_another_event_first_misleads_the_body() -> None:
    player = Player(two_steps())
    body = player.body
    other = player.write(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(b'{"yes":true}')))
    event = player.write(EventType.STEP_COMPLETED, "s1", b"1")
    body.advance([event._replace(slot=0)])
    body.learn([other, event])
    assert body.misled
    rebuilt = player.replay()
    assert rebuilt.position == Position(3, event.slot, event.mark)
    assert [call.id for call in rebuilt.fresh] == ["s2"]


def test_the_position_is_that_of_the_last_decisive_event_delivered() -> None:
    wf = registry()

    @wf.step
    async def one() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await one()
        await one()

    player = Player(renew)
    assert player.body.position == START
    player.complete("s1")
    last = player.log[-2]
    assert player.body.position == Position(1, last.slot, last.mark)


def test_a_finished_body_still_counts_what_it_no_longer_sees() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> str:
        return "done"

    player = Player(renew)
    player.cancel()
    assert returned(player) == "done"
    assert player.body.position.decided == 1


def test_events_are_learned_without_gaps_and_repeats_are_ignored() -> None:
    player = Player(two_steps())
    player.body.learn(player.log)
    with pytest.raises(InternalError):
        player.body.learn([player.log[-1]._replace(slot=len(player.log) + 2)])


# --- what goes wrong ----------------------------------------------------------------------------


def diverge(recorded: str, called: str) -> Any:
    wf = registry()
    wf.step(name="charge")(_step)
    wf.step(name="refund")(_step)

    @wf.workflow(name="part")
    async def part() -> None: ...

    async def make(kind: str) -> None:
        if kind == "wait":
            await sleep(1)
        elif kind == "hook":
            await Approval.wait()
        elif kind == "child":
            await part()
        elif kind == "attributes":
            await set_attributes({"a": "b"})
        elif kind != "nothing":
            await wf.steps[kind]()

    @wf.workflow
    async def renew(kind: str) -> None:
        try:
            await make(kind)
            await wf.steps["charge"]()
        except Exception:
            await sleep(99)

    player = Player(renew, recorded)
    other = Player(renew, called).build()
    other.learn(player.log)
    other.run()
    return other.problem


@pytest.mark.parametrize(
    ("recorded", "called", "says"),
    [
        ("charge", "refund", ("step charge (s1)", "step refund (s1)")),
        ("charge", "child", ("step charge (s1)", "child part (s1)")),
        ("child", "charge", ("child part (s1)", "step charge (s1)")),
        ("wait", "charge", ("wait (w1)", "step charge (s1)")),
        ("hook", "wait", ("hook (h1)", "wait (w1)")),
        ("attributes", "charge", ("attr (a1)", "step charge (s1)")),
        ("wait", "nothing", ("wait (w1)", "step charge (s1)")),
    ],
)
def test_a_divergence_names_what_is_recorded_and_what_was_called(
    recorded: str, called: str, says: tuple[str, str]
) -> None:
    problem = diverge(recorded, called)
    assert isinstance(problem, Divergence)
    assert (problem.recorded, problem.called) == says
    assert problem.slot == 3


def test_a_divergence_is_not_raised_into_the_body_and_says_where_it_waits() -> None:
    problem = diverge("charge", "refund")
    assert len(problem.waiting_for) == 1
    assert "test_body.py" in problem.waiting_for[0]
    assert "waits for step refund (s1)" in problem.waiting_for[0]


def test_a_call_that_is_missing_at_the_end_is_a_divergence() -> None:
    wf = registry()
    wf.step(name="charge")(_step)

    @wf.workflow
    async def renew(often: int) -> None:
        for _ in range(often):
            await wf.steps["charge"]()

    player = Player(renew, 2)
    player.complete("s1")
    body = Player(renew, 1).build()
    body.learn(player.log)
    body.run()
    assert isinstance(body.problem, Divergence)
    assert body.problem.called == "nothing more"


def test_changed_arguments_are_noticed_and_the_recorded_answer_is_used() -> None:
    wf = registry()

    @wf.step(name="charge")
    async def charge(amount: int) -> str: ...

    @wf.workflow
    async def renew(amount: int) -> str:
        return await charge(amount)

    player = Player(renew, 1)
    player.complete("s1", "paid")
    body = Player(renew, 2).build()
    body.learn(player.log)
    body.run()
    assert body.problem is None
    assert body.outcome == player.body.outcome
    assert [(drift.id, drift.name) for drift in body.drifts] == [("s1", "charge")]


def test_a_result_that_cannot_be_read_any_more_is_a_problem_and_no_failure() -> None:
    wf = registry()

    @wf.step
    async def charge() -> int: ...

    @wf.workflow
    async def renew() -> None:
        try:
            await charge()
        except Exception:
            await charge()

    player = Player(renew)
    player.move(EventType.STEP_COMPLETED, "s1", b'"text"')
    assert isinstance(player.body.problem, Undecodable)
    assert player.body.outcome is None


def test_an_input_that_cannot_be_read_any_more_is_a_problem() -> None:
    wf = registry()

    @wf.workflow
    async def renew(n: Any) -> None: ...

    other = registry()

    @other.workflow(name="renew")
    async def changed(n: int) -> None: ...

    player = Player(renew, "text")
    player.workflow = changed
    body = player.replay()
    assert isinstance(body.problem, Undecodable)
    assert body.problem.slot == 0


def test_a_quiet_body_with_nothing_open_is_a_deadlock() -> None:
    wf = registry()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> None:
        await charge()
        await asyncio.Event().wait()

    player = Player(renew)
    player.complete("s1")
    assert isinstance(player.body.problem, Deadlock)
    assert "renew (test_body.py" in player.body.problem.frames[0]


def test_a_dropped_call_does_not_keep_a_body_alive() -> None:
    wf = registry()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await charge()
        await asyncio.Event().wait()

    player = Player(renew)
    player.fire("w1")
    assert isinstance(player.body.problem, Deadlock)


def test_a_body_that_spins_is_stopped() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        while True:
            await asyncio.sleep(0)

    player = Player(renew)
    assert isinstance(player.body.problem, Spinning)


@pytest.mark.parametrize("swallow", [False, True])
def test_a_body_that_does_not_come_to_rest_is_interrupted(swallow: bool) -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> None:
        count = 0
        while count < 10**12:
            try:
                count += 1
            except BaseException:
                if not swallow:
                    raise
                await asyncio.sleep(0)

    player = Player(renew, stuck_after=0.2)
    assert isinstance(player.body.problem, Stuck)
    assert any("test_body.py" in frame for frame in player.body.problem.frames)


# --- driving ------------------------------------------------------------------------------------


async def test_a_body_is_driven_from_a_callback_of_the_worker_loop() -> None:
    wf = registry()

    @wf.workflow
    async def renew() -> str:
        await asyncio.sleep(0)
        return "done"

    def work() -> Player:
        return Player(renew)

    player = await drive(asyncio.get_running_loop(), work)
    assert returned(player) == "done"
    assert asyncio.get_running_loop().is_running()
    with pytest.raises(RuntimeError, match="callback"):
        player.replay()


def test_as_completed_answers_in_the_order_of_the_ends() -> None:
    wf = registry()

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
    wf = registry()

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


def test_the_failure_codec_is_the_registrys() -> None:
    assert decode_failure(encode_failure(ValueError("x"))).args == ("x",)
