"""Keys: one hash tag a partition, ids that locate their run, a table that is the truth."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from world_redis import ids, keys
from world_redis.keys import LAYOUT, PARTITION_KEYS, RUN_KEYS, Keys, QueueKeys

KEYS = Keys("shop")


def _tag(key: str) -> str:
    match = re.search(r"\{([^}]+)\}", key)
    assert match is not None, key
    return match[1]


@pytest.mark.parametrize("partition", [0, 7, 1023])
def test_every_key_a_script_touches_has_one_hash_tag(partition: int) -> None:
    runs = [ids.new_run_id(partition) for _ in range(3)]
    named = KEYS.script_keys(partition, ["default", "slow"], runs)
    assert len(named) == len(set(named)) == 6 + 2 * 5 + 3 * 4
    assert {_tag(key) for key in named} == {f"shop:{partition}"}
    assert all(key.startswith(f"shop:{LAYOUT}:") for key in named)


def test_keys_come_in_the_order_scripts_expect() -> None:
    run = ids.new_run_id(0)
    named = KEYS.script_keys(0, ["q"], [run])
    names = [
        *PARTITION_KEYS,
        *(f"{name}:q" for name in QueueKeys._fields),
        *(f"{run}:{name}" for name in RUN_KEYS),
    ]
    assert [key.split("}:", 1)[1] for key in named] == names
    assert KEYS.bell(0, "q") == KEYS.queue(0, "q")[QueueKeys._fields.index("bell")]


def test_two_namespaces_share_nothing() -> None:
    other, run = Keys("shop2"), ids.new_run_id(0)
    mine = {*KEYS.script_keys(0, ["q"], [run]), KEYS.namespace_record(), KEYS.token("t"), KEYS.start("k")}
    theirs = {
        *other.script_keys(0, ["q"], [run]),
        other.namespace_record(),
        other.token("t"),
        other.start("k"),
    }
    assert not mine & theirs
    assert not {_tag(key) for key in mine if "{" in key} & {_tag(key) for key in theirs if "{" in key}


def test_the_namespace_record_is_the_same_in_every_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    record, run_keys = KEYS.namespace_record(), KEYS.run(0, ids.new_run_id(0))
    monkeypatch.setattr(keys, "LAYOUT", "2")
    assert KEYS.namespace_record() == record
    assert KEYS.run(0, ids.new_run_id(0))[0].split("}")[0] != run_keys[0].split("}")[0]


def test_registry_keys_do_not_depend_on_the_partitions_in_use() -> None:
    tags = {_tag(KEYS.token(f"order-{number}")) for number in range(2000)}
    assert len(tags) > 500
    assert KEYS.token("order-42") == KEYS.token("order-42") != KEYS.start("order-42")
    assert _tag(KEYS.start("a}b{c")) == _tag(KEYS.start("a}b{c")), "what a user chose cannot break the tag"


def test_the_table_of_keys_names_each_of_them() -> None:
    table = keys.__doc__ or ""
    for kind, names in (("partition", PARTITION_KEYS), ("queue", QueueKeys._fields), ("run", RUN_KEYS)):
        for name in names:
            shown = f"{name}:<queue>" if kind == "queue" else name
            assert f"| {kind} `{shown}` |" in table


# --- ids ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [0, 31, 32, 1023])
def test_a_run_id_names_its_partition(partition: int) -> None:
    run_id = ids.new_run_id(partition)
    assert ids.is_run_id(run_id) and ids.partition_of(run_id) == partition


@pytest.mark.parametrize("text", ["", "wrun_", "wrun_" + "I" * 26, "wrun_8" + "0" * 25, "step_1"])
def test_anything_else_is_no_run_id(text: str) -> None:
    with pytest.raises(ValueError, match="not a run id"):
        ids.partition_of(text)


def test_partitions_are_0_to_1023() -> None:
    for partition in (-1, 1024):
        with pytest.raises(ValueError, match="is not in 0"):
            ids.new_run_id(partition)


def test_no_mark_is_drawn_twice_not_even_by_threads_that_draw_at_once() -> None:
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda _: [ids.new_mark() for _ in range(500)], range(8)))
    marks = [mark for each in drawn for mark in each]
    assert len(set(marks)) == len(marks) == 4000 and {len(mark) for mark in marks} == {8}


def test_a_forked_child_draws_marks_of_its_own() -> None:
    ids.new_mark()
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write, b"".join(ids.new_mark() for _ in range(64)))
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = pipe.read()
    assert len(theirs) == 8 * 64
    assert not {ids.new_mark() for _ in range(64)} & {theirs[at : at + 8] for at in range(0, 8 * 64, 8)}


def test_a_childs_id_is_the_same_in_every_replay_and_in_its_parents_partition() -> None:
    parent = ids.new_run_id(77)
    child = ids.child_run_id(parent, "s3")
    assert child == ids.child_run_id(parent, "s3") != ids.child_run_id(parent, "s4")
    assert ids.is_run_id(child) and ids.partition_of(child) == 77


def test_correlation_ids_are_short_inside_and_long_outside() -> None:
    assert ids.long_id("s12") == "step_00000000000000000000000012"
    assert ids.long_id("h12345678901234567890") == "hook_00000012345678901234567890"
    assert ids.event_id(7) == "evnt_00000000000000000000000007"


def test_idempotency_keys_include_the_run() -> None:
    one, other = ids.new_run_id(0), ids.new_run_id(0)
    assert ids.idempotency_key(one, "s1") != ids.idempotency_key(other, "s1")
