"""Servers that restart, fill up, refuse or vanish; connections that are cut."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as StoreClient

from tests.lua.kit import LEASE, START_OF_TIME, A, E, Session, StoreKit, child_of, run_message
from tests.lua.proxy import Proxy
from tests.servers import start_test_server
from world_redis.embedded import EmbeddedServer
from world_redis.errors import (
    AccessRefused,
    LayoutMismatch,
    LeaseMismatch,
    StoreUnavailable,
    UnsafeServer,
)
from world_redis.ids import child_run_id, new_run_id
from world_redis.link import PER_WRITE, Link
from world_redis.messages import Kind
from world_redis.safety import _refuse_old
from world_redis.scripts import SCRIPTS
from world_redis.transition import Decision, Send
from world_redis.world import RedisWorld


@pytest.fixture
async def own(private_server: EmbeddedServer) -> AsyncIterator[StoreKit]:
    """A kit on a server of its own, with the real clock."""
    async with RedisWorld(private_server.url, lease=3) as world:
        kit = StoreKit(world, private_server.url)
        yield kit
        assert await kit.breaches() == []


async def _config(kit: StoreKit, **settings: str | int) -> None:
    for name, value in settings.items():
        await kit.world.command("CONFIG", "SET", name.replace("_", "-"), value)


# --- a server that goes away --------------------------------------------------------------------------


async def test_a_server_killed_and_restarted_robs_nobody(
    own: StoreKit, private_server: EmbeddedServer
) -> None:
    await _config(own, appendfsync="always")
    session = await own.session()
    await session.inline("s1")
    server, connects = own.world.server, own.world.connects
    private_server.kill()
    private_server.restart()
    assert await own.take("c2") == []
    assert own.world.server != server and own.world.connects > connects
    record = await own.world.command("HMGET", own.world.keys.partition(0)[0], "amnesty", "last")
    assert int(record[0]) - int(record[1]) == 3000
    assert await own.queue().renew(0, [session.held]) == ["ok"]
    assert (await session.send(facts=[session.done("s1")], advanced=True)).answer is A.OK


async def test_calls_wait_for_a_server_that_is_away(own: StoreKit, private_server: EmbeddedServer) -> None:
    await _config(own, appendfsync="always")
    run_id = await own.start()
    private_server.kill()
    waiting = asyncio.create_task(own.log().read(run_id))
    await asyncio.sleep(0)
    private_server.restart()
    snapshot = await waiting
    assert snapshot is not None and snapshot.head == 1


async def test_patience_has_an_end_when_asked_for(private_server: EmbeddedServer) -> None:
    url = private_server.url
    async with RedisWorld(url, patience=0.1) as world:
        private_server.kill()
        with pytest.raises(StoreUnavailable, match=r"no answer from Redis for 0\.1 s"):
            await world.command("PING")
        private_server.restart()
        assert await world.command("PING") == b"PONG"


async def test_a_server_that_comes_back_unsafe_is_waited_for_until_it_is_put_right(
    own: StoreKit, private_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    await _config(own, maxmemory_policy="allkeys-lru")
    await own.world.close()
    starting = asyncio.create_task(own.start())
    while "maxmemory-policy is allkeys-lru" not in caplog.text:  # noqa: ASYNC110 - logs tell nobody
        await asyncio.sleep(0.01)
    assert not starting.done()
    async with StoreClient.from_url(private_server.url) as plain:
        await plain.config_set("maxmemory-policy", "noeviction")
    assert await starting


async def test_a_slow_answer_is_no_silence(
    own: StoreKit, private_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Bytes come, though the whole reply takes longer than the limit."""
    async with Proxy(private_server.url, tmp_path) as proxy:
        link = await Link.open(proxy.url, silence=0.3)
        await link.call("SET", "large", b"x" * 100_000)
        proxy.trickle = 0.02  # seconds between two pieces: about half a second for the reply
        assert len(await link.call("GET", "large")) == 100_000
        await link.close()


async def test_scripts_are_loaded_again_after_a_flush(own: StoreKit) -> None:
    await own.start()
    await own.world.command("SCRIPT", "FLUSH")
    assert len(await own.take()) == 1


async def test_a_flushed_server_is_an_empty_one(own: StoreKit) -> None:
    await own.start()
    await own.world.command("FLUSHALL")
    assert await own.take() == []


# --- a server that is full ----------------------------------------------------------------------------


async def test_a_full_server_lapses_no_lease_and_goes_on_when_memory_is_freed(own: StoreKit) -> None:
    session = await own.session()
    await own.hooked(session)
    session.learn(await session.send())
    await own.take()
    hasty = StoreKit(await own.another_world(lease=3, patience=0.1), own.url)
    await own.world.command("SET", "ballast", b"x" * 1_000_000)
    await _config(own, maxmemory="1mb")
    assert await own.queue().renew(0, [session.held]) == ["ok"]
    waiting = asyncio.create_task(session.send(decisions=[Decision(E.PATCH_RECORDED, "p1")]))
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        await hasty.start()
    assert not waiting.done()
    await _config(own, maxmemory="0")
    assert (await waiting).answer is A.OK
    await _config(own, maxmemory="1mb")
    reply = await session.send(settles=[session.held])
    assert (reply.answer, reply.unsettled) == (A.OK, False), "settling frees memory, so it is let through"
    await _config(own, maxmemory="0")
    await own.world.command("DEL", "ballast")


# --- a server that is not for us ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_evicts_is_refused(own: StoreKit, policy: str) -> None:
    await _config(own, maxmemory_policy=policy)
    with pytest.raises(UnsafeServer, match=f"maxmemory-policy is {policy}.*noeviction"):
        await own.another_world()
    await _config(own, maxmemory_policy="noeviction")


@pytest.mark.parametrize(
    ("info", "refused"),
    [
        ({"redis_version": "6.2.14"}, True),
        ({"redis_version": "7.0.15"}, False),
        ({"redis_version": "8.2.1"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.4"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, False),
        ({}, True),
    ],
)
def test_an_old_server_is_refused(info: dict[str, str], refused: bool) -> None:
    if refused:
        with pytest.raises(UnsafeServer, match="too old"):
            _refuse_old(info)
    else:
        _refuse_old(info)


async def test_another_layout_is_refused(kit: StoreKit) -> None:
    await kit.world.command("HSET", kit.world.keys.namespace_record(), "layout", "99")
    with pytest.raises(LayoutMismatch, match="layout 99"):
        await kit.another_world()


async def test_another_lease_is_refused(kit: StoreKit) -> None:
    with pytest.raises(LeaseMismatch, match="a lease of 30 s, this process wants 10 s"):
        await kit.another_world(lease=10)


async def test_a_wrong_password_is_an_error_not_a_wait(own: StoreKit) -> None:
    await _config(own, requirepass="secret")
    with pytest.raises(AccessRefused) as caught:
        await asyncio.wait_for(own.another_world(), 5)
    assert "secret" not in str(caught.value)
    await _config(own, requirepass="")


async def test_a_command_the_user_may_not_run_is_an_error_not_a_wait(own: StoreKit) -> None:
    await own.world.command("ACL", "SETUSER", "default", "-evalsha")
    with pytest.raises(AccessRefused, match="evalsha"):
        await own.start()
    await own.world.command("ACL", "SETUSER", "default", "+@all")


@pytest.mark.slow  # a node takes seconds to believe in its cluster
async def test_every_script_runs_on_a_cluster_node() -> None:
    """Which refuses a call whose keys are not all in one slot."""
    with start_test_server(config={"cluster-enabled": "yes"}) as server:
        link = await Link.open(server.url)
        await link.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        async with RedisWorld(server.url) as world:
            kit = StoreKit(world, server.url)
            await kit.clock.set(START_OF_TIME)
            session = await kit.session()
            await kit.queued_step(session)
            step = await kit.take_one("c2")
            await kit.claim("c2", step)
            await kit.queue("c2").bury(step, reason="X", detail="")
            await kit.hooked(session)
            await kit.resume(session.run_id)
            child = child_run_id(session.run_id, "s2")
            await session.send(
                decisions=[Decision(E.STEP_CREATED, "s2", mode="child")],
                children=[child_of(session.run_id, "s2", child)],
            )
            await kit.runs.cancel(session.run_id, b"")
            assert await kit.runs.terminate(child, b"", retention_ms=1000) is A.OK
            assert await kit.queue().renew(0, [session.held]) == ["ok"]
            await kit.queue().defer(0, [session.held], queue="other")
            assert (await kit.types(session.run_id))[-1] == "step_failed:s2"
        await link.close()


# --- connections ----------------------------------------------------------------------------------------


async def test_an_answer_that_is_lost_is_asked_for_again(
    redis_url: str, namespace: str, tmp_path: Path
) -> None:
    """Every call of a run's life, each cut off after the server has carried it out."""
    async with Proxy(redis_url, tmp_path) as proxy, RedisWorld(proxy.url, namespace=namespace) as world:
        kit = StoreKit(world, proxy.url)
        for script in SCRIPTS.values():  # so that no answer is "never heard of that script"
            await world.command("SCRIPT", "LOAD", script.text)
        run_id = new_run_id(0)
        proxy.lose_next_answer()
        assert await kit.runs.start(run_id, run_message(run_id), b"") is A.OK
        proxy.lose_next_answer()
        session = await _taken(kit, run_id)
        proxy.lose_next_answer()
        reply = await session.send(
            decisions=[
                Decision(E.STEP_CREATED, "s1", b"in"),
                Decision(E.HOOK_CREATED, "h1", token="token-h1"),
            ],
            sends=[Send(Kind.STEP, "s1", "default")],
        )
        assert reply.decisions == [A.OK, A.OK]
        (step,) = await kit.take("c2")
        proxy.lose_next_answer()
        claim = await kit.claim("c2", step)
        assert (claim.answer, claim.starts) == (A.OK, 1)
        proxy.lose_next_answer()
        assert (await kit.resume(run_id))[0] is A.OK
        proxy.lose_next_answer()
        assert await kit.queue("c2").defer(0, [step.held]) == ["superseded"]
        proxy.lose_next_answer()
        assert await kit.runs.cancel(run_id, b"") is A.EXISTS
        proxy.lose_next_answer()
        assert await kit.runs.terminate(run_id, b"", retention_ms=1000) is A.EXISTS
        assert proxy.lost == 8
        assert await kit.types(run_id) == [
            "run_created",
            "step_created:s1",
            "hook_created:h1",
            "step_started:s1",
            "hook_received:h1",
            "run_cancel_requested",
            "run_cancelled",
        ]
        await session.send(settles=[session.held])
        assert await kit.breaches() == []


async def _taken(kit: StoreKit, run_id: str) -> Session:
    delivery = await kit.take_one()
    assert delivery.attempt == 1, "the hand-out whose answer was lost is this one"
    return Session(kit, run_id, delivery, seen=1)


async def test_a_broken_link_fails_whoever_waits_and_leaves_nothing(redis_url: str, tmp_path: Path) -> None:
    async with Proxy(redis_url, tmp_path) as proxy:
        before = asyncio.all_tasks()
        link = await Link.open(proxy.url)
        proxy.lose_next_answer()
        results = await asyncio.gather(*(link.call("PING") for _ in range(20)), return_exceptions=True)
        assert all(type(result).__name__ == "ConnectionError" for result in results)
        assert link.broken
        with pytest.raises(Exception, match="connection lost"):
            await link.call("PING")
        await link.close()
        assert not {task for task in asyncio.all_tasks() - before if task.get_name() == "redis-link"}


async def test_calls_at_once_share_writes_and_the_server_begins_with_the_first_of_them(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await Link.open(redis_url)
    transport, writes = link._transport, list[bytes]()
    write = transport.write

    def noted(data: bytes) -> None:
        writes.append(data)
        write(data)

    monkeypatch.setattr(transport, "write", noted)
    texts = [f"{number:03}".encode() for number in range(2 + 3 * PER_WRITE)]
    try:
        assert await asyncio.gather(*(link.call("ECHO", text) for text in texts)) == texts
    finally:
        await link.close()
    assert [data.count(b"ECHO") for data in writes] == [1, PER_WRITE, PER_WRITE, PER_WRITE, 1]


async def test_a_cancelled_caller_does_not_shift_the_answers(redis_url: str) -> None:
    link = await Link.open(redis_url)
    calls = [link.call("ECHO", str(number)) for number in range(10)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    assert [await call for call in calls[1::2]] == [b"1", b"3", b"5", b"7", b"9"]
    assert await link.call("ECHO", "last") == b"last"
    await link.close()


async def test_an_error_is_its_own_callers_alone(redis_url: str) -> None:
    link = await Link.open(redis_url)
    calls: list[Any] = [link.call("PING"), link.call("NO-SUCH")]
    good, bad = await asyncio.gather(*calls, return_exceptions=True)
    assert good == b"PONG" and isinstance(bad, Exception)
    assert not link.broken
    await link.close()


async def test_a_server_that_falls_silent_is_given_up(redis_url: str, tmp_path: Path) -> None:
    async with Proxy(redis_url, tmp_path) as proxy:
        link = await Link.open(proxy.url, silence=0.05)
        proxy.silent = True
        with pytest.raises(Exception, match=r"not answered for 0\.05 s"):
            await link.call("PING")
        await link.close()
        with pytest.raises((TimeoutError, OSError)):
            await Link.open(proxy.url, silence=0.05)


async def test_a_world_replaces_a_broken_connection(kit: StoreKit, caplog: pytest.LogCaptureFixture) -> None:
    link = kit.world._link
    assert link is not None
    with caplog.at_level(logging.WARNING):
        await asyncio.gather(
            kit.world.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"),
            *(kit.start() for _ in range(10)),
            return_exceptions=True,
        )
    assert kit.world._link is not link and link.broken
    kit.tolerated.add("place")
    assert len(await kit.take()) == 10
    kit.tolerated.clear()
    assert kit.world.lease == LEASE / 1000


async def test_the_embedded_server_is_a_server_like_any_other(tmp_path: Path) -> None:
    with start_test_server(tmp_path / "data", config={"appendfsync": "always"}) as server:
        async with RedisWorld(server.url) as world:
            await StoreKit(world, server.url).start()
    with start_test_server(tmp_path / "data") as server:
        async with RedisWorld(server.url) as world:
            assert len(await StoreKit(world, server.url).take()) == 1
