"""The users of ops/redis/users.acl may do what their part does, and nothing else."""

import re
import shutil
from functools import reduce
from pathlib import Path

import pytest
from redis.exceptions import NoPermissionError

from tests.acceptance import app
from tests.acceptance.kit import ROOT, Fleet
from tests.ops.kit import OPS, ExporterProcess, RedisUnderAcl
from tests.servers import require_tool
from worker.fleet import FleetReader
from world_redis.embedded import EmbeddedServerError, find_binary
from world_redis.errors import AccessRefused
from world_redis.link import Link
from world_redis.survey import survey

USERS = (OPS / "redis" / "users.acl").read_text()
NAMESPACE = "wf"  # what the file's patterns name
# Where our Python names a command: alone, together with others, or in parts.
ASKED = r'(?:\.(?:command|_?call)\(|many\(world, \[\(|\b_packed\()\s*"([A-Z_]+)"'


def allowed(user: str) -> set[str]:
    (line,) = [line for line in USERS.splitlines() if line.startswith(f"user {user} ")]
    return {word[1:] for word in line.split() if word[0] == "+"}


def commands_of_scripts() -> set[str]:
    found = set()
    for path in (ROOT / "world_redis" / "lua").rglob("*.lua"):
        for name, sub in re.findall(r"redis\.p?call\('(\w+)'|call\('(\w+)'", path.read_text()):
            found.add((name or sub).lower())
    return found - {"xinfo"} | {"xinfo|stream"}


def commands_of_python() -> set[str]:
    found = set()
    for package in ("worker", "world_redis"):
        for path in (ROOT / package).rglob("*.py"):
            found |= set(re.findall(ASKED, path.read_text()))
    return {name.lower() for name in found} - {"script", "config"} | {"script|load", "config|get"}


def test_the_worker_may_run_every_command_of_ours_and_no_other() -> None:
    of_connections = {"hello", "auth", "client|setinfo", "ping", "subscribe", "unsubscribe"}
    used = commands_of_scripts() | commands_of_python() | of_connections
    assert allowed("worker") == used, "ops/redis/users.acl must follow"


def servers() -> list[str]:
    """The server on PATH, and the packaged one."""
    try:
        packaged = str(find_binary())
    except EmbeddedServerError:
        packaged = ""
    return sorted({"redis-server", packaged} - {""})


def users_for(server: str) -> str:
    """Redis 7.0 does not know CLIENT SETINFO, and refuses to load a file that names it."""
    old = "valkey" not in server
    unknown = (" +client|setinfo", " +waitaof")
    return reduce(lambda text, part: text.replace(part, ""), unknown, USERS) if old else USERS


@pytest.mark.needs_redis_server
@pytest.mark.parametrize("server", servers(), ids=lambda path: Path(path).name)
async def test_a_fleet_lives_under_its_users(server: str, tmp_path: Path) -> None:
    program = shutil.which(server) or require_tool(server)
    async with RedisUnderAcl(tmp_path, program, users_for(server)) as redis:
        worker_url = redis.url("worker", "change-me-worker")
        async with Fleet(worker_url, NAMESPACE, tmp_path) as fleet:
            await _everything(fleet)
        exporter_url = redis.url("exporter", "change-me-exporter")
        async with ExporterProcess(tmp_path, exporter_url, NAMESPACE) as exporter:
            seen = await exporter.gauges()
        assert seen["workflow_exporter_up"] == 1
        assert "workflow_open_runs" in seen
        admin = await Link.open(redis.url("admin", "any"))
        assert await admin.call("ACL", "LOG") == [], "something was refused"
        await admin.close()


async def _everything(fleet: Fleet) -> None:
    """Steps here and in the queue, a hook, a sleep, a failure, children, a cancel, a worker killed."""
    for _ in range(2):
        await fleet.worker(queues="default,side")
    kinds = [
        await fleet.start(workflow, *args)
        for workflow, args in (
            (app.fails_for_good, ()),
            (app.retries, (1,)),
            (app.parent_of_marks, ()),
            (app.first_of_two, ()),
        )
    ]
    fleet.effects.open_gate("long")
    hooked = await fleet.start(app.named_hook, "token-of-mine")
    await fleet.client.resume(await fleet.hook_token(hooked), app.Go("on"))
    cancelled = await fleet.start(app.sleeps_long)
    await cancelled.cancel()
    held = await fleet.start(app.one_held_step)
    (start,) = await fleet.effects.started("a")
    fleet.by_pid(start.pid).kill()
    await fleet.effects.started("a", 2)
    fleet.effects.open_gate("a")
    for run in (*kinds, hooked, cancelled, held):
        await fleet.finished(run)
    assert await kinds[1].return_value(timeout=5) == 2
    once = app.fails_for_good.with_options(idempotency_key="k")
    assert (await fleet.start(once)).run_id == (await fleet.start(once)).run_id
    assert len((await fleet.client.list_runs()).runs) > len(kinds)
    await survey(fleet.world, 0, deep=True)


@pytest.mark.needs_redis_server
async def test_the_exporter_may_not_write_and_nobody_leaves_the_namespace(tmp_path: Path) -> None:
    program = require_tool("redis-server")
    async with RedisUnderAcl(tmp_path, program, users_for("redis-server")) as redis:
        exporter = await Link.open(redis.url("exporter", "change-me-exporter"))
        worker = await Link.open(redis.url("worker", "change-me-worker"))
        for link, command in (
            (exporter, ("HSET", "wf:x", "a", "b")),
            (exporter, ("EVALSHA", "0" * 40, 1, "wf:x")),
            (worker, ("HSET", "other:x", "a", "b")),
            (worker, ("PUBLISH", "other", "x")),
            (worker, ("FLUSHALL",)),
            (worker, ("KEYS", "*")),
            (worker, ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")),
        ):
            with pytest.raises(NoPermissionError):
                await link.call(*command)
        await exporter.close()
        await worker.close()
        reader = FleetReader(redis.url("exporter", "wrong"))
        with pytest.raises(AccessRefused):
            await reader.read()
