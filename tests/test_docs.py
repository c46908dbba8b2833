"""What the pages say about the code is so."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.core.docs import PAGE, render

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted([*REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("*.md")])
TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
FILE = re.compile(r"`((?:worker|world_redis|docs|examples|ops)/[\w./-]+\.\w+)`")
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_tables_about_ownership_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == render(page), "run `python -m tests.core.docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_file_and_link_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = []
    for path, test in TEST.findall(text):
        file = REPOSITORY / path
        if not file.is_file() or (test and test not in names_in(file)):
            missing.append(f"{path}::{test}" if test else path)
    missing += [path for path in FILE.findall(text) if not (REPOSITORY / path).exists()]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing


def test_every_guarantee_names_the_test_that_shows_it() -> None:
    lines = (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith(("| situation", "|---"))]
    assert len(rows) > 50
    assert [row for row in rows if "`tests/" not in row] == []
