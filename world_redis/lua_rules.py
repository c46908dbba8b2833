"""Writes ``lua/lib/10_rules.lua`` from RULES: ``python -m world_redis.lua_rules``. A test fails when the
file is stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .events import RULES, Rule

PATH = Path(__file__).parent / "lua" / "lib" / "10_rules.lua"

HEAD = """\
-- Generated from events.py by `python -m world_redis.lua_rules`. Do not edit.
--
-- The state machine, a function for each column. Not a table: the server would build it anew at every call.
"""


def render() -> str:
    columns = [
        _subject(),
        _column("target", "Its state afterwards ('': as before).", {r.code: r.target for r in RULES}),
        _column("guard", "A further check when the state allows it.", {r.code: r.guard for r in RULES}),
        _column(
            "finished",
            "What a finished run answers ('': judged by the subject's state).",
            {r.code: r.finished or "" for r in RULES},
        ),
        _decisive(),
    ]
    return "\n".join([HEAD, *columns, *_answers()])


def _subject() -> str:
    lines = ["-- What the event moves; nil: no such code.", "local function rule_subject(code)"]
    return "\n".join([*lines, *_returns({r.code: r.subject for r in RULES}), "end\n"])


def _column(name: str, says: str, values: Mapping[str, str]) -> str:
    """A function of known codes; the commonest value is what is left."""
    (common, _), *_ = Counter(values.values()).most_common()
    others = {code: value for code, value in values.items() if value != common}
    lines = [f"-- {says}", f"local function rule_{name}(code)", *_returns(others), f"  return '{common}'"]
    return "\n".join([*lines, "end\n"])


def _returns(values: Mapping[str, str]) -> Iterator[str]:
    for value in dict.fromkeys(values.values()):
        codes = [code for code, other in values.items() if other == value]
        yield f"  if {_any(codes)} then return '{value}' end"


def _decisive() -> str:
    return (
        "-- May a body observe it?\n"
        "local function rule_decisive(code)\n"
        f"  return {_any(rule.code for rule in RULES if rule.decisive)}\n"
        "end\n"
    )


def _answers() -> Iterator[str]:
    yield "-- What a writer is answered when the subject is in `state`."
    yield "local function rule_answer(code, state)"
    for number, rule in enumerate(RULES):
        yield f"  {'elseif' if number else 'if'} code == '{rule.code}' then -- {rule.type}"
        yield from _answers_of(rule)
    yield "  end"
    yield "end\n"


def _answers_of(rule: Rule) -> Iterator[str]:
    *answers, last = dict.fromkeys(rule.answers.values())
    for answer in answers:
        states = [state for state, other in rule.answers.items() if other == answer]
        yield f"    if {_any(states, 'state')} then return '{answer}' end"
    yield f"    return '{last}'"


def _any(words: Iterable[str], name: str = "code") -> str:
    return " or ".join(f"{name} == '{word}'" for word in words)


if __name__ == "__main__":
    PATH.write_text(render())
