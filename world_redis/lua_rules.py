"""Writes ``lua/lib/10_rules.lua`` from RULES: ``python -m world_redis.lua_rules``. A test fails when the
file is stale."""

from __future__ import annotations

from pathlib import Path

from .events import RULES, Rule

PATH = Path(__file__).parent / "lua" / "lib" / "10_rules.lua"


def render() -> str:
    lines = [
        "-- Generated from events.py by `python -m world_redis.lua_rules`. Do not edit.",
        "-- code → the row of the state machine; finished '' means: judged by the subject's state.",
        "",
        "local RULES = {",
        *(_row(rule) for rule in RULES),
        "}",
        "",
    ]
    return "\n".join(lines)


def _row(rule: Rule) -> str:
    answers = ", ".join(f"{state} = '{answer}'" for state, answer in rule.answers.items())
    finished = rule.finished or ""
    decisive = "true" if rule.decisive else "false"
    return (
        f"  {rule.code} = {{ subject = '{rule.subject}', target = '{rule.target}', "
        f"guard = '{rule.guard}', decisive = {decisive}, finished = '{finished}', "
        f"answers = {{ {answers} }} }}, -- {rule.type}"
    )


if __name__ == "__main__":
    PATH.write_text(render())
