"""Every verb is sent with the files of ``lua/lib`` it uses, and with no other: each function of a script is
made anew at every call."""

import re
from pathlib import Path

import pytest

from world_redis import scripts
from world_redis.scripts import needs, needs_inside, needs_named

LUA = Path(scripts.__file__).parent / "lua"
LIB = {path.stem[3:]: path for path in sorted((LUA / "lib").glob("*.lua"))}
FILES = [path for path in [*LUA.glob("*.lua"), *LIB.values()] if "KEYS     " not in path.read_text()]

KEYWORDS = """and break do else elseif end false for function if in local nil not or repeat return then true
until while"""
GIVEN = "redis cmsgpack KEYS ARGV string math ipairs pairs tonumber unpack next"


def _code(path: Path) -> str:
    """Without comments, and with empty strings."""
    return re.sub(r"'(?:\\.|[^'\\\n])*'|--[^\n]*", lambda m: "''" if m[0][0] == "'" else "", path.read_text())


def _used(path: Path) -> set[str]:
    """Names that are read: neither fields nor set."""
    found = set(re.findall(r"(?<![\w.:])[A-Za-z_]\w*\b(?!\s*=(?!=))", _code(path)))
    return found - set(KEYWORDS.split()) - set(GIVEN.split())


def _names(lists: list[str]) -> set[str]:
    return {name for names in lists for name in re.findall(r"\w+", names)}


def _local(path: Path) -> set[str]:
    """Names declared anywhere in the file, parameters and loop variables too."""
    code = _code(path)
    declared = re.findall(r"\blocal (\w+(?:,\s*\w+)*)", code)
    functions = re.findall(r"\bfunction\b *(\w* *\([^)]*\))", code)
    return _names([*declared, *functions, *re.findall(r"\bfor ([\w, ]+?)(?= =| in )", code)])


def _offered(path: Path) -> set[str]:
    """What a file of the library gives to those that need it: its outermost locals."""
    code = _code(path)
    return _names(re.findall(r"^local (?!function)(\w+(?:,\s*\w+)*)", code, flags=re.M)) | set(
        re.findall(r"^local function (\w+)", code, flags=re.M)
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_name_a_file_uses_is_its_own_or_in_what_it_needs(path: Path) -> None:
    given = {"prelude", *needs(path), *needs_inside(path)}
    known: set[str] = set().union(*(_offered(LIB[name]) for name in given))
    assert _used(path) - _local(path) - known == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_is_needed_in_vain(path: Path) -> None:
    named = [*needs_named(path), *needs_inside(path)]
    assert [name for name in named if not _used(path) & _offered(LIB[name])] == []


def test_files_of_the_library_need_only_what_stands_before_them() -> None:
    order = list(LIB)
    for name, path in LIB.items():
        assert [other for other in needs_named(path) if order.index(other) >= order.index(name)] == []


def test_a_verb_is_sent_with_what_it_needs() -> None:
    text = scripts.SCRIPTS["take"].text.decode()
    assert LIB["messages"].read_text() in text
    assert LIB["steps"].read_text() not in text


def test_what_one_function_needs_stands_inside_it() -> None:
    text = scripts.SCRIPTS["append"].text.decode()
    assert text.count(LIB["finish"].read_text()) == 1
    assert "local function run_end()\n" + LIB["finish"].read_text() in text
