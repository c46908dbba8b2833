"""From ``MODULE:NAME`` to the object, with the user's directory importable and none of it in our way.

This package is imported whole before the working directory goes on ``sys.path``, so that a ``worker.py`` of
the user shadows nothing of ours.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import asynccontextmanager
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, NoReturn

import click

import world_redis  # noqa: F401 - see above

from ..sdk.definitions import WorkflowDefinition
from ..sdk.registry import Workflows
from .commands import Failure, refuse

OWN_NAMES = ("worker", "world_redis")
_NOT_OF_USERS = (  # beginnings of file names
    "<",  # code without a file: the import system, the __init__ of a dataclass
    str(Path(importlib.__file__).parent),
    str(Path(__file__).resolve().parents[1]),
)


def make_importable(directory: Path | None = None) -> None:
    """Put the user's directory (the working one) first on the path."""
    place = str(directory or Path.cwd())
    if place not in sys.path:
        sys.path.insert(0, place)


def shadows(directory: Path | None = None) -> list[str]:
    """What in the user's directory, or among the installed distributions, has a name of ours."""
    place = directory or Path.cwd()
    ours = Path(__file__).resolve().parents[2]
    found = []
    owners = packages_distributions()  # reads what every distribution installed: tens of milliseconds
    for name in OWN_NAMES:
        for path in (place / f"{name}.py", place / name / "__init__.py"):
            if path.exists() and not path.resolve().is_relative_to(ours / name):
                found.append(
                    f"{path} has the name of a package of stepfleet: `import {name}` outside of this program "
                    "finds it instead; rename it"
                )
        for distribution in set(owners.get(name, ())) - {"stepfleet"}:
            found.append(f"the distribution {distribution!r} also owns `{name}`; uninstall it")
    return found


def load_registry(specs: Sequence[str]) -> Workflows:
    """The registry of ``MODULE:REGISTRY``, or of several joined."""
    registries = [_load(spec, Workflows, "a registry", "REGISTRY") for spec in specs]
    return registries[0] if len(registries) == 1 else _joined(registries)


def load_workflow(spec: str) -> WorkflowDefinition[Any, Any]:
    """The workflow of ``MODULE:WORKFLOW``: a variable, or the name of one in a registry of the module."""
    found: WorkflowDefinition[Any, Any] = _load(spec, WorkflowDefinition, "a workflow", "WORKFLOW")
    return found


def _joined(registries: Sequence[Workflows]) -> Workflows:
    namespaces = {registry.namespace for registry in registries}
    if len(namespaces) > 1:
        refuse("registries of different namespaces cannot share a worker: start one for each")
    lifespans = [registry.lifespan for registry in registries if registry.lifespan is not None]
    if len(lifespans) > 1:
        refuse("only one of the registries may have a lifespan: start a worker for each")
    joined = Workflows(namespace=namespaces.pop())
    for registry in registries:
        joined.include(registry)
        if registry.lifespan is not None:
            joined.lifespan = _with_own_registry(registry)
    return joined


def _with_own_registry(registry: Workflows) -> Any:
    lifespan = registry.lifespan
    assert lifespan is not None

    @asynccontextmanager
    async def run(_: Workflows) -> Any:
        async with lifespan(registry) as resources:
            yield resources

    return run


def _load(spec: str, kind: type[Any], what: str, form: str) -> Any:
    module_name, _, name = spec.partition(":")
    if not module_name or not name or module_name.endswith(".py") or "/" in module_name:
        refuse(f"{spec!r} does not name {what}: write MODULE:{form}, for example {_example(spec, form)}")
    make_importable()
    module = _import(module_name)
    found = getattr(module, name, None)
    if isinstance(found, kind):
        return found
    if kind is WorkflowDefinition:
        for registry in _of_kind(module, Workflows).values():
            if name in registry.workflows:
                return registry.latest(name)
    if module_name in OWN_NAMES:
        _refuse_own_name(module_name)
    if kind is WorkflowDefinition and isinstance(found, Workflows):
        _refuse_registry(module_name, name, found)
    fitting = list(_of_kind(module, kind))
    near = difflib.get_close_matches(name, fitting, n=1) or fitting[:3]
    hint = f"; did you mean {' or '.join(f'{module_name}:{each}' for each in near)}?" if near else ""
    problem = f"has no {name!r}" if found is None else f"has {name!r}, which is not {what}"
    refuse(f"module {module_name!r} {problem}{hint}")


def _refuse_own_name(module_name: str) -> NoReturn:
    own = Path(f"{module_name}.py")
    cure = f"; rename your {own}, its name is taken" if own.exists() else ""
    refuse(f"{module_name!r} is the library itself and offers no workflows{cure}")


def _refuse_registry(module_name: str, name: str, registry: Workflows) -> NoReturn:
    offered = ", ".join(f"{module_name}:{each}" for each in registry.workflows) or "none yet"
    refuse(f"{module_name}:{name} is a registry, which is not a workflow; its workflows: {offered}")


def _example(spec: str, form: str) -> str:
    """What to write instead of `spec`: of a file's path, its module."""
    path, _, name = spec.partition(":")
    if not path.endswith(".py"):
        return "app.jobs:wf" if form == "REGISTRY" else "app.jobs:renew"
    module = ".".join(part for part in Path(path).with_suffix("").parts if part not in ("/", ".", ".."))
    if not name and form == "REGISTRY" and Path(path).is_file():
        made = re.search(r"^(\w+)\s*(?::.*)?=\s*(?:\w+\.)?Workflows\(", Path(path).read_text(), re.MULTILINE)
        name = made[1] if made else ""
    return f"{module}:{name or form}"


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only when it is this very module: a missing import inside of it is told as what it is.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            _fail_to_import(name, error)
        refuse(f"there is no module {error.name!r} in {Path.cwd()} or among the installed packages")
    except Exception as error:
        _fail_to_import(name, error)


def _fail_to_import(name: str, error: Exception) -> NoReturn:
    """Show the user's own frames and no other, then one line with the place."""
    told = traceback.TracebackException.from_exception(error)
    _keep_frames_of_users(told)
    last = told.stack[-1] if told.stack else None
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}: "
    else:
        place = f"{last.filename}:{last.lineno}: " if last else ""
    lines = told.format() if last else told.format_exception_only()
    click.echo("".join(lines).rstrip(), err=True)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    raise Failure(f"module {name!r} cannot be imported: {place}{type(error).__name__}: {text}") from error


def _keep_frames_of_users(told: traceback.TracebackException) -> None:
    kept = [frame for frame in told.stack if not frame.filename.startswith(_NOT_OF_USERS)]
    told.stack = traceback.StackSummary.from_list(kept)
    for earlier in (told.__cause__, told.__context__):
        if earlier is not None:
            _keep_frames_of_users(earlier)


def _of_kind(module: Any, kind: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if isinstance(value, kind)}
