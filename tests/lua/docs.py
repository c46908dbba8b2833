"""Writes the tables of ``docs/store.md`` from the code: ``python -m tests.lua.docs``."""

from __future__ import annotations

import re
from pathlib import Path

from world_redis import events, keys, scripts
from world_redis.events import RULES, STATES

PAGE = Path(__file__).parents[2] / "docs" / "store.md"


def render(page: str) -> str:
    """`page` with every generated part made anew."""
    for name, table in (
        ("keys", key_table()),
        ("answers", answers()),
        ("rules", rules()),
        ("scripts", verbs()),
    ):
        part = f"<!-- generated: {name} -->\n\n{table}\n\n<!-- end -->"
        before, _, rest = page.partition(f"<!-- generated: {name} -->")
        page = before + part + rest.partition("<!-- end -->")[2]
    return page


def key_table() -> str:
    return "\n".join(line for line in (keys.__doc__ or "").splitlines() if line.startswith("|"))


def answers() -> str:
    source = Path(events.__file__).read_text()
    found = re.findall(r'^    [A-Z_]+ = "(\w+)"  # (.+)$', source.split("class EventType")[0], flags=re.M)
    return "\n".join(
        ["| answer | meaning |", "|---|---|", *(f"| `{word}` | {text} |" for word, text in found)]
    )


def rules() -> str:
    lines = []
    for subject, states in STATES.items():
        lines += [
            f"**{subject}**",
            "",
            f"| event | becomes | guard | {' | '.join(states)} | finished run |",
            "|" + "---|" * (len(states) + 4),
        ]
        for rule in RULES:
            if rule.subject == subject:
                name = f"`{rule.type}`" + (" **·**" if rule.decisive else "")
                cells = [name, rule.target, rule.guard, *(rule.answers[state] for state in states)]
                lines.append(f"| {' | '.join([*cells, rule.finished or 'by state'])} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def verbs() -> str:
    lines = ["| script | what it does | why a resend is harmless |", "|---|---|---|"]
    for name in sorted(scripts.SCRIPTS):
        path = Path(scripts.__file__).parent / "lua" / f"{name}.lua"
        if path.exists():
            lines.append(f"| `{name}` | {_first(path)} | {_resend(path)} |")
    return "\n".join(lines)


def _first(path: Path) -> str:
    head = path.read_text().split("\n--\n")[0]
    return re.sub(r"\s*\n-- *", " ", head.removeprefix("-- "))


def _resend(path: Path) -> str:
    match = re.search(r"^-- Resend +(.+(?:\n--   +.+)*)", path.read_text(), flags=re.M)
    assert match is not None, f"{path.name} does not say what makes its resend harmless"
    return re.sub(r"\n-- +", " ", match[1])


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
