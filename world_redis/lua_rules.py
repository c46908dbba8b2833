"""Writes ``lua/lib/10_rules.lua`` from RULES: ``python -m world_redis.lua_rules``. A test fails when the
file is stale."""

from __future__ import annotations

from pathlib import Path

from .events import RULES, Rule

PATH = Path(__file__).parent / "lua" / "lib" / "10_rules.lua"

HEAD = """\
-- Generated from events.py by `python -m world_redis.lua_rules`. Do not edit.
-- code → the row of the state machine; finished '' means: judged by the subject's state.
-- A row is built when it is first asked for: a call needs three of them, and all would cost it 10 µs.

local RULES = setmetatable({}, { __index = function(rules, code)
  local row"""

TAIL = """\
  end
  rules[code] = row
  return row
end })
"""


def render() -> str:
    branches = [f"  {'elseif' if number else 'if'} {_branch(rule)}" for number, rule in enumerate(RULES)]
    return "\n".join([HEAD, *branches, TAIL])


def _branch(rule: Rule) -> str:
    answers = ", ".join(f"{state} = '{answer}'" for state, answer in rule.answers.items())
    finished = rule.finished or ""
    decisive = "true" if rule.decisive else "false"
    return (
        f"code == '{rule.code}' then -- {rule.type}\n"
        f"    row = {{ subject = '{rule.subject}', target = '{rule.target}', guard = '{rule.guard}', "
        f"decisive = {decisive}, finished = '{finished}',\n"
        f"      answers = {{ {answers} }} }}"
    )


if __name__ == "__main__":
    PATH.write_text(render())
