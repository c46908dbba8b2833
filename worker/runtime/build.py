"""The build id: which code a worker runs, so that a run refused by one build is tried by another.

``WORKFLOW_BUILD_ID`` names it. When that is not set, it is a digest of the source files of the modules that
define the registry's workflows and steps: the same in every container of one image, another one as soon as
one of these files changes. Code these modules import is not looked at; whoever changes only that sets the
variable, for example to the commit.
"""

from __future__ import annotations

import hashlib
import inspect
from importlib.metadata import PackageNotFoundError, version

from ..sdk.registry import Workflows


def build_of(registry: Workflows) -> str:
    """The default build id of a registry: 12 hexadecimal digits, or the version of this package when no
    source can be read."""
    digest, found = hashlib.sha256(), False
    for module, source in sorted(_sources(registry).items()):
        found = True
        digest.update(f"{module}\0{len(source)}\0".encode() + source)
    return digest.hexdigest()[:12] if found else _own_version()


def _sources(registry: Workflows) -> dict[str, bytes]:
    """Module name → source, of every module that defines something of the registry."""
    functions = [step.fn for step in registry.steps.values()]
    functions += [each.fn for versions in registry.workflows.values() for each in versions.values()]
    sources = {}
    for fn in functions:
        path = inspect.unwrap(fn).__code__.co_filename
        try:
            with open(path, "rb") as file:
                sources[fn.__module__] = file.read()
        except OSError:
            continue  # typed at a prompt, or packed into an archive
    return sources


def _own_version() -> str:
    try:
        return version("stepfleet")
    except PackageNotFoundError:
        return "unknown"
