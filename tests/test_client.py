"""Clients: starting, waiting, asking, resuming, from outside of any worker."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from worker.runtime.worker import Worker
from worker.sdk import default as client_module
from worker.sdk.calls import sleep
from worker.sdk.client import Client
from worker.sdk.default import close_default_clients, default_client, get_run, start
from worker.sdk.errors import (
    FatalError,
    HookNotFoundError,
    RunCancelledError,
    RunExistsError,
    RunExpiredError,
    RunNotFoundError,
    RunTimeoutError,
    TypeValidationError,
    WorkflowRunFailedError,
)
from worker.sdk.hooks import BaseHook
from worker.sdk.notices import RECHECK
from worker.sdk.registry import Workflows
from worker.sdk.run import Run
from worker.settings import Settings
from world_redis.embedded import EmbeddedServer
from world_redis.ids import new_run_id

wf = Workflows()
attempts: list[str] = []


@dataclass
class Receipt:
    id: str
    amount: Decimal


@dataclass
class Approval(BaseHook):
    by: str
    yes: bool = True


@wf.step
async def charge(customer: str, amount: Decimal) -> Receipt:
    return Receipt(f"r-{customer}", amount)


@wf.step(max_retries=0)
async def refuse(reason: str) -> None:
    raise FatalError(reason)


@wf.step
async def hold() -> None:
    await asyncio.sleep(30)


@wf.step
async def start_another(customer: str) -> str:
    run = await start(renew, customer)
    attempts.append(run.run_id)
    if len(attempts) == 1:
        raise ValueError("once more")
    return run.run_id


@wf.workflow
async def renew(customer: str, amount: Decimal = Decimal("9.90")) -> Receipt:
    return await charge(customer, amount)


@wf.workflow
async def failing(reason: str) -> None:
    await refuse(reason)


@wf.workflow
async def waiting() -> None:
    await sleep("1d")


@wf.workflow
async def approved(token: str | None = None) -> str:
    async with Approval.wait(token=token, metadata={"order": 7}) as hook:
        answer = await hook
    return f"{answer.by}:{answer.yes}"


@wf.workflow
async def from_a_step(customer: str) -> str:
    return await start_another(customer)


def settings_for(url: str, namespace: str, **more: object) -> Settings:
    return Settings.load(**{"redis_url": url, "namespace": namespace, "drain_seconds": 1, **more})


@pytest.fixture
async def client(redis_url: str, namespace: str) -> AsyncIterator[Client]:
    async with Client.from_settings(settings_for(redis_url, namespace)) as opened:
        yield opened


@asynccontextmanager
async def working(url: str, namespace: str) -> AsyncIterator[Worker]:
    worker = Worker(wf, settings_for(url, namespace))
    job = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        while worker.ready not in ("", "draining") and not job.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        worker.drain()
        assert await job == 0


@pytest.fixture
async def worker(redis_url: str, namespace: str) -> AsyncIterator[Worker]:
    async with working(redis_url, namespace) as started:
        yield started


async def until_status(run: object, status: str) -> None:
    async with asyncio.timeout(10):
        while await run.status() != status:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# --- starting -----------------------------------------------------------------------------------


async def test_a_run_is_started_and_its_result_comes_back_as_annotated(
    client: Client, worker: Worker
) -> None:
    run = await client.start(renew, "cus_1")
    assert await run.return_value(timeout=10) == Receipt("r-cus_1", Decimal("9.90"))
    assert await run.status() == "completed"


async def test_bad_arguments_fail_at_the_caller_and_start_nothing(client: Client) -> None:
    with pytest.raises(TypeValidationError, match="missing a required argument"):
        await client.start(renew)  # type: ignore[call-arg]
    with pytest.raises(TypeValidationError, match="amount"):
        await client.start(renew, "cus_1", "lots")  # type: ignore[arg-type]
    with pytest.raises(TypeValidationError, match="amount"):
        await client.start_many(renew, [("cus_1",), {"customer": "cus_2", "amount": "lots"}])
    assert (await client.list_runs()).runs == []


async def test_many_runs_are_started_at_once(client: Client, worker: Worker) -> None:
    runs = await client.start_many(renew, [("a",), {"customer": "b"}, ["c", Decimal(1)]])
    receipts = await asyncio.gather(*(run.return_value(timeout=10) for run in runs))
    assert [receipt.id for receipt in receipts] == ["r-a", "r-b", "r-c"]


async def test_options_are_recorded(client: Client) -> None:
    run = await client.start(renew.with_options(queue="slow", attributes={"team": "a"}), "cus_1")
    info = await run.info()
    assert (info.workflow, info.version, info.status, info.queue) == ("renew", 1, "pending", "slow")
    assert info.attributes == {"team": "a"} == await run.attributes()
    assert not info.finished and info.started_at is None


async def test_a_delayed_run_waits(client: Client, worker: Worker) -> None:
    begun = asyncio.get_running_loop().time()
    run = await client.start(renew.with_options(delay="300ms"), "cus_1")
    await run.return_value(timeout=10)
    assert asyncio.get_running_loop().time() - begun >= 0.3


# --- idempotency keys ---------------------------------------------------------------------------


async def test_a_key_starts_one_run_however_often_it_is_used(client: Client) -> None:
    keyed = renew.with_options(idempotency_key="k")
    runs = await asyncio.gather(*(client.start(keyed, f"cus_{n}") for n in range(20)))
    assert len({run.run_id for run in runs}) == 1
    assert len((await client.list_runs()).runs) == 1


async def test_a_duplicate_can_be_an_error(client: Client) -> None:
    first = await client.start(renew.with_options(idempotency_key="k"), "cus_1")
    with pytest.raises(RunExistsError) as error:
        await client.start(renew.with_options(idempotency_key="k", on_duplicate="raise"), "cus_1")
    assert error.value.run_id == first.run_id


async def test_a_key_of_another_workflow_is_an_error(client: Client) -> None:
    await client.start(renew.with_options(idempotency_key="k"), "cus_1")
    with pytest.raises(RunExistsError, match="renew"):
        await client.start(waiting.with_options(idempotency_key="k"))


async def test_whoever_meets_a_claim_without_a_run_creates_it(client: Client, worker: Worker) -> None:
    keyed = renew.with_options(idempotency_key="k")
    request = client._request(*client._encode(keyed, ("first",), {}), keyed.options)
    await client._claim("k", request, keyed)  # and the first caller dies here
    with pytest.raises(RunNotFoundError):
        await client.get_run(request.run_id).info()
    run = await client.start(keyed, "second")
    assert run.run_id == request.run_id
    assert (await run.return_value(timeout=10)).id == "r-first"


async def test_a_step_that_is_retried_starts_one_run(
    client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts.clear()
    client_module.use_client(client)
    try:
        run = await client.start(from_a_step, "cus_1")
        started = await run.return_value(timeout=10)
    finally:
        client_module._defaults.clear()
    assert attempts == [started, started]


# --- ends ---------------------------------------------------------------------------------------


async def test_a_failed_run_raises_with_code_and_cause(client: Client, worker: Worker) -> None:
    run = await client.start(failing, "no money")
    with pytest.raises(WorkflowRunFailedError) as error:
        await run.return_value(timeout=10)
    assert error.value.run_id == run.run_id
    assert error.value.error_code == "USER_ERROR"
    assert isinstance(error.value.__cause__, FatalError)
    assert "no money" in str(error.value.__cause__)


async def test_a_run_that_lasts_longer_than_the_caller_waits(client: Client, worker: Worker) -> None:
    run = await client.start(waiting)
    with pytest.raises(RunTimeoutError):
        await run.return_value(timeout="50ms")
    assert await run.status() in ("pending", "running")


async def test_a_cancelled_run_says_why(client: Client, worker: Worker) -> None:
    run = await client.start(waiting)
    await until_status(run, "running")
    await run.cancel(reason="changed my mind")
    await run.cancel(reason="again")
    with pytest.raises(RunCancelledError, match="changed my mind"):
        await run.return_value(timeout=10)
    with pytest.raises(RunExpiredError):
        await run.cancel()


async def test_a_terminated_run_ends_without_a_worker(client: Client) -> None:
    run = await client.start(waiting)
    await run.terminate(reason="enough")
    await run.terminate()
    with pytest.raises(RunCancelledError, match="enough"):
        await run.return_value(timeout=10)


async def test_a_run_nobody_knows(client: Client) -> None:
    run: Run[None] = client.get_run(new_run_id(0))
    for asking in (run.status, run.info, run.return_value, run.cancel, run.terminate, run.retry, run.events):
        with pytest.raises(RunNotFoundError):
            await asking()
    with pytest.raises(RunNotFoundError):
        client.get_run("order-7")


async def test_a_failed_run_is_retried_as_a_new_one(client: Client, worker: Worker) -> None:
    run = await client.start(failing, "no money")
    with pytest.raises(WorkflowRunFailedError):
        await run.return_value(timeout=10)
    again = await run.retry()
    assert again.run_id != run.run_id
    assert (await again.info()).retried_from == run.run_id
    with pytest.raises(WorkflowRunFailedError, match="no money"):
        await again.return_value(timeout=10)


async def test_a_healthy_or_completed_run_is_not_retried(client: Client, worker: Worker) -> None:
    run = await client.start(renew, "cus_1")
    await run.return_value(timeout=10)
    with pytest.raises(RunExpiredError):
        await run.retry()
    with pytest.raises(ValueError, match="not parked"):
        await (await client.start(waiting)).retry()


# --- waiting ------------------------------------------------------------------------------------


async def test_500_waiters_share_one_connection(
    client: Client, worker: Worker, redis_url: str, namespace: str
) -> None:
    async def connections() -> int:
        info = await (await client.world()).command("INFO", "clients")
        return int(
            dict(line.split(":") for line in info.decode().split() if ":" in line)["connected_clients"]
        )

    await (await client.start(renew, "warm")).return_value(timeout=10)
    before = await connections()
    runs = await client.start_many(approved, [(f"{namespace}-{n}",) for n in range(500)])
    waiters = [asyncio.create_task(run.return_value(timeout=60)) for run in runs]
    await until_status(runs[-1], "running")
    assert await connections() <= before + 2  # other tests of this server aside
    await asyncio.gather(*(resume_when_open(client, f"{namespace}-{n}") for n in range(500)))
    assert set(await asyncio.gather(*waiters)) == {"ann:True"}


async def resume_when_open(client: Client, token: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.resume(token, Approval("ann"))
                return
            except HookNotFoundError:
                await asyncio.sleep(0.02)


async def test_a_waiter_is_told_at_once_and_does_not_ask(client: Client) -> None:
    run = await client.start(waiting)
    waiter = asyncio.create_task(run.return_value())
    notices = client.notices
    async with asyncio.timeout(5):
        while not any(told.done() for told in notices._subscribed.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    begun = asyncio.get_running_loop().time()
    await run.terminate()
    with pytest.raises(RunCancelledError):
        await waiter
    assert asyncio.get_running_loop().time() - begun < RECHECK / 10
    assert notices._waiting == {} and notices._subscribed == {}


async def test_a_waiter_is_told_whatever_the_url_says_of_the_protocol(
    redis_url: str, namespace: str, worker: Worker
) -> None:
    odd = f"{redis_url}{'&' if '?' in redis_url else '?'}protocol=3"
    async with Client.from_url(odd, namespace=namespace) as client:
        run = await client.start(waiting)
        waiter = asyncio.create_task(run.return_value())
        async with asyncio.timeout(5):
            while not any(told.done() for told in client.notices._subscribed.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await run.terminate()
        with pytest.raises(RunCancelledError):
            await waiter


async def test_a_waiter_survives_a_restart_of_the_server(
    private_server: EmbeddedServer, namespace: str
) -> None:
    async with Client.from_settings(settings_for(private_server.url, namespace)) as client:
        run = await client.start(waiting)
        waiter = asyncio.create_task(run.return_value())
        async with asyncio.timeout(5):
            while not client.notices._subscribed:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await asyncio.to_thread(private_server.restart)
        await run.terminate(reason="after the restart")
        async with asyncio.timeout(10):
            with pytest.raises(RunCancelledError, match="after the restart"):
                await waiter


# --- hooks --------------------------------------------------------------------------------------


async def test_a_hook_is_resumed_by_a_chosen_token(client: Client, worker: Worker, namespace: str) -> None:
    run = await client.start(approved, namespace)
    await resume_when_open(client, namespace)
    assert await run.return_value(timeout=10) == "ann:True"
    with pytest.raises(HookNotFoundError):
        await client.resume(namespace, Approval("bob"))


async def test_a_hook_is_looked_up_and_resumed_by_its_default_token(client: Client, worker: Worker) -> None:
    run = await client.start(approved)
    async with asyncio.timeout(10):
        while not (hooks := table.hooks if (table := await run.table()) else ()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    found = await client.get_hook(hooks[0].token)
    assert (found.run_id, found.name, found.metadata) == (run.run_id, "Approval", {"order": 7})
    client_module.use_client(client)
    try:
        await Approval("eve", yes=False).resume(found, idempotency_key="once")
        await Approval("eve", yes=False).resume(found.token, idempotency_key="once")
    except HookNotFoundError:
        pass  # the run was quicker than the repeat
    finally:
        client_module._defaults.clear()
    assert await run.return_value(timeout=10) == "eve:False"
    received = [event for event in await run.events() if event.type == "hook_received"]
    assert len(received) == 1


@pytest.mark.parametrize("token", ["nobody", "wrun_0123456789ABCDEFGHJKMNPQ00.1.secret"])
async def test_a_token_nobody_waits_for(client: Client, token: str) -> None:
    with pytest.raises(HookNotFoundError):
        await client.resume(token, Approval("ann"))
    with pytest.raises(HookNotFoundError):
        await client.get_hook(token)


# --- looking ------------------------------------------------------------------------------------


async def test_events_and_steps_tell_what_happened(client: Client, worker: Worker) -> None:
    run = await client.start(renew, "cus_1")
    await run.return_value(timeout=10)
    events = await run.events()
    assert [event.slot for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events] == [
        "run_created",
        "run_started",
        "step_created",
        "step_started",
        "step_completed",
        "run_completed",
    ]
    assert events[0].detail["input"]["customer"] == "cus_1"
    assert events[2].name == "charge"
    (step,) = await run.steps()
    assert (step.name, step.state, step.starts, step.errors, step.crashes) == ("charge", "completed", 1, 0, 0)
    assert step.ended_at is not None and step.result == {"id": "r-cus_1", "amount": Decimal("9.90")}
    assert await run.children() == []


async def test_a_running_step_shows_its_owner_and_lease(
    client: Client, redis_url: str, namespace: str
) -> None:
    registry = Workflows()
    registry.include(wf)

    @registry.workflow
    async def long() -> None:
        await hold()

    worker = Worker(registry, settings_for(redis_url, namespace, drain_seconds=0))
    job = asyncio.create_task(worker.run())
    run = await client.start(long)
    async with asyncio.timeout(10):
        while not (steps := await run.steps()) or steps[0].state != "running":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    (step,) = steps
    assert (step.mode, step.owner_live, step.starts) == ("inline", True, 1)
    assert 0 < step.lease_left <= 30 and step.owner and step.epoch > 0
    worker.drain()
    await job


async def test_runs_are_listed_open_ones_first_and_page_by_page(client: Client, worker: Worker) -> None:
    done = [await client.start(renew, f"cus_{n}") for n in range(5)]
    for run in done:
        await run.return_value(timeout=10)
    still = [await client.start(waiting) for _ in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        page = await client.list_runs(limit=3, cursor=cursor)
        seen += [info.run_id for info in page.runs]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen[:5] == [run.run_id for run in reversed(still)] or set(seen[:5]) == {r.run_id for r in still}
    assert sorted(seen) == sorted(run.run_id for run in done + still)
    assert len((await client.list_runs(workflow="renew")).runs) == 5
    assert len((await client.list_runs(status="completed")).runs) == 5
    assert (await client.list_runs(status="parked")).runs == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"limit": 0}, "limit is 0; it is 1 or more"),
        ({"limit": -1}, "limit is -1"),
        ({"status": "done"}, "status is 'done'; it is one of pending, running, completed"),
        ({"status": ""}, "status is ''"),
        ({"cursor": "nonsense"}, "not a cursor"),
    ],
    ids=str,
)
async def test_a_page_that_cannot_be_asked_for_is_refused_at_once(
    client: Client, asked: dict[str, Any], said: str
) -> None:
    await client.start(renew, "cus_1")
    with pytest.raises(ValueError, match=said):
        async with asyncio.timeout(5):
            await client.list_runs(**asked)


# --- the default client -------------------------------------------------------------------------


def with_default(url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", url)
    monkeypatch.setenv("WORKFLOW_NAMESPACE", namespace)


def test_every_event_loop_has_its_own_default_client(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_default(redis_url, namespace, monkeypatch)

    async def once() -> str:
        run = await start(waiting)
        assert default_client() is default_client()
        assert await get_run(run.run_id).status() == "pending"
        return run.run_id

    assert asyncio.run(once()) != asyncio.run(once())


async def test_without_a_url_the_default_client_names_the_variable() -> None:
    with pytest.raises(ValueError, match="WORKFLOW_REDIS_URL"):
        await start(waiting)


async def test_a_forked_child_starts_with_no_client(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_default(redis_url, namespace, monkeypatch)
    await default_client().open()
    assert len(client_module._defaults) >= 1
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not client_module._defaults else 1)
    assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222 - it ends at once
    await close_default_clients()


PROGRAM = """
import asyncio
from worker.sdk.default import start
from worker.sdk.registry import Workflows
from worker.sdk.run import Run
wf = Workflows()

@wf.workflow
async def nothing() -> None: ...

async def main():
    run = await start(nothing)
    print(await run.status())

asyncio.run(main())
asyncio.run(main())
"""


def test_a_program_that_closes_nothing_ends_without_a_complaint(redis_url: str, namespace: str) -> None:
    environment = {**os.environ, "WORKFLOW_REDIS_URL": redis_url, "WORKFLOW_NAMESPACE": namespace}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "pending\npending\n", "")


# --- called wrongly ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: "renew", "got 'renew'"),
        (lambda: charge, "got <step 'charge'>"),
        (lambda: renew("cus_1"), r"got a call of workflow renew; .* start\(name, ...\)"),
        (lambda: None, "got None"),
    ],
)
async def test_only_a_workflow_is_started(client: Client, make: Callable[[], Any], said: str) -> None:
    for begin in (client.start, start):
        with pytest.raises(TypeError, match=r"start\(\) takes a workflow \(@wf.workflow\); " + said):
            await begin(make(), 1)


async def test_only_a_token_or_a_hook_is_resumed(client: Client) -> None:
    with pytest.raises(TypeError, match=r"resume\(\) takes the token of a hook, or the hook; got None"):
        await client.resume(None, Approval("ann"))
