"""What must have one builder has one: idempotency keys, and the two versions of the log's language.

Two steps of one name in two runs that live at once would share a key the day somebody builds one by hand and
forgets the run. So this reads the source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_imports import REPOSITORY, dotted, sources
from worker.core import spec
from world_redis import ids

NAME = "idempotency_key"
PACKAGES = ("worker", "world_redis")
MAY_JOIN_A_RUN: dict[str, str] = {
    # file: what it makes of a run's id and something else
    "world_redis/ids.py": "idempotency keys: the builder",
    "world_redis/keys.py": "names of keys in Redis",
    "world_redis/hooks.py": "addresses of hooks, in the registry of tokens",
    "worker/runtime/seeds.py": "default tokens of hooks, and the secret in them",
}


# --- reading the source -----------------------------------------------------------------------------


def keys_built_in(tree: ast.Module) -> Iterator[int]:
    """Lines that make an idempotency key: text with a run's id and something after a colon, or a value of
    that name which is neither handed on nor made by the builder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and _joins_a_run(node):
            yield node.lineno
        elif isinstance(node, ast.keyword) and node.arg == NAME and _makes(node.value):
            yield node.value.lineno
        elif isinstance(node, ast.Assign) and _makes(node.value):
            if any(dotted(target)[-1] == NAME for target in node.targets):
                yield node.lineno
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod) and _of_a_run(node.left):
            yield node.lineno


def _joins_a_run(text: ast.JoinedStr) -> bool:
    """``f"{run_id}:..."`` or ``f"{run_id}/..."``: an id that something is appended to."""
    return any(
        isinstance(value, ast.FormattedValue)
        and _of_a_run(value.value)
        and isinstance(after, ast.Constant)
        and re.match(r"[:/.|#-](?! )", str(after.value))
        for value, after in zip(text.values, text.values[1:], strict=False)
    )


def _of_a_run(node: ast.expr) -> bool:
    return dotted(node)[-1] in ("run_id", "run")


def _makes(node: ast.expr) -> bool:
    """Is this value made here, and not by the builder?"""
    if isinstance(node, ast.Call):
        return dotted(node.func)[-1] != NAME
    return isinstance(node, ast.JoinedStr | ast.BinOp) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


# --- idempotency keys -------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_an_idempotency_key_is_built_in_one_place(package: str) -> None:
    found = []
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        name = str(path.relative_to(REPOSITORY))
        lines = keys_built_in(ast.parse(path.read_text(encoding="utf-8")))
        found += [f"{name}:{line}" for line in lines if name not in MAY_JOIN_A_RUN]
    assert found == []


def test_every_file_that_may_join_a_run_exists() -> None:
    assert [name for name in MAY_JOIN_A_RUN if not (REPOSITORY / name).is_file()] == []


@pytest.mark.parametrize(
    "code",
    [
        'key = f"{run_id}:{step}"',
        'key = f"{self.run_id}/{id}"',
        'key = run_id + ":" + step',
        'StepMetadata(idempotency_key=f"{name}-{n}")',
        "StepMetadata(idempotency_key=str(step))",
        'idempotency_key = "charge"',
    ],
)
def test_a_key_built_by_hand_is_found(code: str) -> None:
    assert list(keys_built_in(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "StepMetadata(idempotency_key=idempotency_key(run_id, id))",
        "resume(token, idempotency_key=idempotency_key)",
        "with_options(idempotency_key=key)",
        "idempotency_key: str | None = None",
        'f"{run_id} was not found"',
        'f"{run_id}: cancelled"',
    ],
)
def test_a_key_that_is_handed_on_is_no_key_built(code: str) -> None:
    assert not list(keys_built_in(ast.parse(code)))


def test_no_script_builds_a_key_of_its_own() -> None:
    """A step is one entry of its run's own hash: a script has no use for a key with a run in it."""
    found = []
    for path in sorted((REPOSITORY / "world_redis" / "lua").rglob("*.lua")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\brun\.id *\.\.", line) or "idempotency" in line:
                found.append(f"{path.name}:{number}: {line.strip()}")
    assert found == []


def test_two_steps_of_one_name_in_two_runs_share_no_key() -> None:
    runs = [ids.new_run_id(partition) for partition in (0, 0, 7, 1023)]
    keys = {ids.idempotency_key(run, f"s{n}") for run in runs for n in range(1, 100)}
    assert len(keys) == len(runs) * 99


# --- versions of the log's language -----------------------------------------------------------------


def test_what_is_written_can_be_read() -> None:
    assert spec.SPEC <= spec.SPEC_READS


@pytest.mark.parametrize(
    ("constant", "users"),
    [("worker.core.spec.SPEC", {"sdk/client.py"}), ("worker.core.spec.SPEC_READS", {"runtime/refusal.py"})],
)
def test_minting_and_reading_are_separate_and_each_has_one_user(constant: str, users: set[str]) -> None:
    found = {
        str(source.path.relative_to("worker"))
        for source in sources("worker")
        for name, _ in source.imports
        if name == constant
    }
    assert found == users


def test_the_lua_files_are_where_this_looks_for_them() -> None:
    assert len(list(Path(REPOSITORY, "world_redis", "lua").rglob("*.lua"))) > 20
