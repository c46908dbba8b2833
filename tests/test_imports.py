"""The floors of the house, read from the source: who may import and call what."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

# --- the rules ---------------------------------------------------------------------------------

# `core` decides: everything it knows is passed in, so that it can be tested and simulated.
CORE_MUST_NOT_IMPORT = (
    "asyncio",
    "multiprocessing",
    "os",
    "random",
    "redis",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
    "world_redis.embedded",
    "world_redis.scripts",
    "world_redis.world",
)
CORE_MUST_NOT_CALL = (
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "open",
    "uuid.uuid1",
    "uuid.uuid4",
)

# `runtime` reaches the outside through its ports, so that the simulator can be the outside.
# Only the files below may do it themselves.
RUNTIME_MUST_NOT_IMPORT = ("redis",)
RUNTIME_MUST_NOT_CALL = (
    "asyncio.create_task",
    "asyncio.ensure_future",
    "asyncio.sleep",
    "asyncio.to_thread",
    "time",
)
RUNTIME_MUST_NOT_CALL_METHODS = ("create_task", "run_in_executor")
RUNTIME_MAY_TOUCH_THE_OUTSIDE: dict[str, str] = {
    # file in worker/runtime: why
    "bodyloop.py": "is an event loop: bodies' tasks are made in it",
    "keeper.py": "a thread with a connection of its own, so that a busy loop does not lose leases",
    "ports.py": "is the way out",
    "worker.py": "assembles the process: opens connections, starts the jobs",
}

# Nothing found in Redis may be able to run code.
NOBODY_MAY_IMPORT = ("cloudpickle", "dill", "marshal", "pickle", "shelve")
NOBODY_MAY_CALL = ("eval", "exec")

Uses = Iterable[tuple[str, int]]  # (dotted name, line)


# --- reading a file ----------------------------------------------------------------------------


def imports_in(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Every import of a file in `package`, absolute. `from a import b` counts as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = [*above, *([node.module] if node.module else [])]
            for alias in node.names:
                yield ".".join([*module, alias.name]), node.lineno


def calls_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every call by the name it was imported under elsewhere: `sleep()` after
    `from asyncio import sleep` is `asyncio.sleep`."""
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, *rest = dotted(node.func)
            yield ".".join([names.get(first, first), *rest]), node.lineno


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name → what it stands for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    return names


def dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return ["?"]  # the result of an expression: it has no name


class Source:
    """One file of the packages."""

    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(REPOSITORY)
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        self.imports = list(imports_in(tree, self.path.parent.parts))
        self.calls = list(calls_in(tree))

    def breaches(self, uses: Uses, forbidden: tuple[str, ...]) -> list[str]:
        return [f"{self.path}:{line}: {name}" for name, line in uses if is_within(name, forbidden)]


def sources(folder: str) -> list[Source]:
    return [Source(path) for path in sorted((REPOSITORY / folder).rglob("*.py"))]


def is_within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


# --- the tests ---------------------------------------------------------------------------------


def test_the_store_never_imports_the_worker() -> None:
    for source in sources("world_redis"):
        assert not source.breaches(source.imports, ("worker",))


def test_core_does_no_io_and_reads_no_clock() -> None:
    for source in sources("worker/core"):
        assert not source.breaches(source.imports, CORE_MUST_NOT_IMPORT)
        assert not source.breaches(source.calls, CORE_MUST_NOT_CALL)


def test_runtime_reaches_the_outside_only_through_its_ports() -> None:
    for source in sources("worker/runtime"):
        name = source.path.relative_to("worker/runtime").as_posix()
        if name in RUNTIME_MAY_TOUCH_THE_OUTSIDE:
            continue
        methods = [(name.rpartition(".")[2], line) for name, line in source.calls if "." in name]
        assert not source.breaches(source.imports, RUNTIME_MUST_NOT_IMPORT)
        assert not source.breaches(source.calls, RUNTIME_MUST_NOT_CALL)
        assert not source.breaches(methods, RUNTIME_MUST_NOT_CALL_METHODS)


def test_every_file_allowed_to_touch_the_outside_exists() -> None:
    for name in RUNTIME_MAY_TOUCH_THE_OUTSIDE:
        assert (REPOSITORY / "worker/runtime" / name).is_file(), name


@pytest.mark.parametrize("package", ["worker", "world_redis"])
def test_nothing_unpickles_or_evaluates(package: str) -> None:
    for source in sources(package):
        assert not source.breaches(source.imports, NOBODY_MAY_IMPORT)
        assert not source.breaches(source.calls, NOBODY_MAY_CALL)


# --- the reader itself -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import time\ntime.monotonic()", "time.monotonic"),
        ("from time import monotonic as m\nm()", "time.monotonic"),
        ("import asyncio as a\na.sleep(1)", "asyncio.sleep"),
        ("async def f():\n    return loop().create_task(c)", "?.create_task"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("eval('1')", "eval"),
    ],
)
def test_a_call_is_known_by_whatever_name_it_was_imported(code: str, name: str) -> None:
    assert name in [called for called, _ in calls_in(ast.parse(code))]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import redis.asyncio", "redis.asyncio"),
        ("from redis import asyncio", "redis.asyncio"),
        ("from .ids import Run", "worker.core.ids.Run"),
        ("from ..sdk import calls", "worker.sdk.calls"),
        ("from .. import sdk", "worker.sdk"),
        ("def f():\n    import pickle", "pickle"),
    ],
)
def test_an_import_is_known_by_its_absolute_name(code: str, name: str) -> None:
    assert name in [found for found, _ in imports_in(ast.parse(code), ("worker", "core"))]
