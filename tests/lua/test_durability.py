"""What an answer is worth: WORKFLOW_DURABILITY."""

import pytest

from tests.servers import start_test_server
from world_redis.errors import StoreUnavailable, UnsafeServer
from world_redis.events import Answer
from world_redis.ids import new_mark, new_run_id
from world_redis.messages import RunContext, RunMessage
from world_redis.runs import Runs
from world_redis.safety import Durability
from world_redis.world import RedisWorld


async def _start(world: RedisWorld) -> Answer:
    run_id = new_run_id(0)
    context = RunContext("w", 1, 6, "default", 1, run_id)
    return await Runs(world).start(run_id, RunMessage(context, bytes(16), b"{}", new_mark()), b"{}")


async def _calls(world: RedisWorld, command: str) -> int:
    raw: bytes = await world.command("INFO", "commandstats")
    for line in raw.decode().splitlines():
        if line.startswith(f"cmdstat_{command}:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("memory", Durability()),
        ("fsync", Durability("fsync")),
        ("replicas:2", Durability("replicas", 2)),
    ],
)
def test_it_is_one_of_three(text: str, parsed: Durability) -> None:
    assert Durability.parse(text) == parsed


@pytest.mark.parametrize("text", ["", "disk", "replicas", "replicas:0", "replicas:x", "fsync:1"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="none of memory, fsync, replicas:N"):
        Durability.parse(text)


async def test_by_default_nothing_is_waited_for(redis_url: str, namespace: str) -> None:
    async with RedisWorld(redis_url, namespace=namespace) as world:
        before = await _calls(world, "waitaof")
        assert await _start(world) is Answer.OK
        assert await _calls(world, "waitaof") == before


async def test_fsync_answers_only_what_is_on_disk() -> None:
    with start_test_server() as server:
        plain = RedisWorld(server.url)
        async with plain:
            info = await plain.command("INFO", "server")
            too_old = b"redis_version:7.0" in info
        if too_old:  # no WAITAOF: only `appendfsync always` will do
            with pytest.raises(UnsafeServer, match="appendfsync always"):
                await RedisWorld(server.url, durability=Durability("fsync")).open()
            return
        async with RedisWorld(server.url, durability=Durability("fsync")) as world:
            assert await _start(world) is Answer.OK
            assert await _calls(world, "waitaof") == 1, "one wait for one answer"


async def test_a_server_that_syncs_always_needs_no_wait() -> None:
    with start_test_server(config={"appendfsync": "always"}) as server:
        async with RedisWorld(server.url, durability=Durability("fsync")) as world:
            assert await _start(world) is Answer.OK
            assert await _calls(world, "waitaof") == 0


async def test_a_new_connection_knows_it_too() -> None:
    with start_test_server(config={"appendfsync": "always"}) as server:
        async with RedisWorld(server.url, durability=Durability("fsync")) as world:
            await world.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
            connects = world.connects
            assert await _start(world) is Answer.OK
            assert world.connects == connects + 1
            assert await _calls(world, "waitaof") == 0


async def test_fsync_without_an_append_only_file_is_refused() -> None:
    with start_test_server(config={"appendonly": "no"}) as server:
        with pytest.raises(UnsafeServer, match="appendonly yes"):
            await RedisWorld(server.url, durability=Durability("fsync")).open()


async def test_replicas_must_be_what_the_server_itself_demands(redis_url: str, namespace: str) -> None:
    world = RedisWorld(redis_url, namespace=namespace, durability=Durability("replicas", 1))
    with pytest.raises(UnsafeServer, match="min-replicas-to-write is 0: set it to 1"):
        await world.open()


async def test_without_its_replicas_a_write_is_not_answered() -> None:
    with start_test_server() as server:
        async with RedisWorld(server.url) as world:
            await world.command("CONFIG", "SET", "min-replicas-to-write", 1)
            world.durability, world.patience = Durability("replicas", 1), 0.5
            with pytest.raises(StoreUnavailable, match=r"0\.5 s"):
                await _start(world)
