"""A script call as it goes over the wire is what the client library would make of its arguments."""

import base64
import tracemalloc
from collections.abc import Sequence

import pytest
from hiredis import pack_command

from world_redis.ids import new_run_id
from world_redis.keys import Keys
from world_redis.scripts import (
    SCRIPTS,
    ScriptCall,
    Switches,
    arguments,
    pack_lua,
    packed_command,
    script_call,
)

SERVER = "f" * 40


def packed(call: ScriptCall, queues: Sequence[str], *, namespace: str = "wf", resent: bool = False) -> bytes:
    """What `packed_command` answers, once it is what the client library makes of its arguments."""
    keys = Keys(namespace)
    made = packed_command(keys, call, queues, SERVER, Switches(queue_backstop=False), resent=resent)
    prefix = base64.urlsafe_b64encode(call.mark).rstrip(b"=")
    context = [SERVER, call.mark, prefix, True, False, resent]
    names = keys.script_keys(call.partition, queues, call.runs)
    said = [SCRIPTS[call.script].sha, len(names), *names, *map(pack_lua, (context, queues, call.args))]
    assert made == pack_command(("EVALSHA", *said))  # type: ignore[arg-type]  # its stub knows one alone
    assert made == pack_command((b"EVALSHA", *arguments(made)))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("queues", [[], ["default"], ["default", "größe $0\r\n\r\n"]])
@pytest.mark.parametrize("runs", [0, 1, 3])
@pytest.mark.parametrize("args", [[], ["", b"", 0], [b"x" * 70_000]])
def test_a_packed_command_says_what_its_arguments_say(
    queues: list[str], runs: int, args: list[object]
) -> None:
    call = script_call("append", 7, args, queues=queues, runs=[new_run_id(7) for _ in range(runs)])
    assert packed(call, queues) == packed(call, queues), "made once, or taken from what is kept"
    packed(call, queues, resent=True)


def test_what_is_kept_of_a_command_is_told_apart_by_all_it_was_made_of() -> None:
    """A queue may have any name, that of a run too."""
    run, other = new_run_id(0), new_run_id(0)
    call = script_call("append", 0, [], runs=[run])
    calls = [
        call,
        call._replace(script="settle"),
        call._replace(partition=1),
        call._replace(runs=[run, other]),
        call._replace(runs=[other]),
        call._replace(runs=[]),
    ]
    kinds = [(each, queues) for each in calls for queues in ([], ["default"], [run], ["default", run])]
    made = [packed(each, queues, namespace=name) for each, queues in kinds for name in ("wf", "wf2")]
    assert len(set(made)) == len(made)


def test_what_many_runs_need_is_not_kept() -> None:
    tracemalloc.start()
    try:
        for _ in range(50):
            packed(script_call("append", 0, [], runs=[new_run_id(0) for _ in range(200)]), ["default"])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20
