"""What happened, one line per step of a schedule, with short names for ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from world_redis.messages import Held
from world_redis.scripts import ScriptCall


class Names:
    """Runs become A, B, C…; messages m1, m2…, in the order they are first seen."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        self._messages: dict[str, str] = {}

    def run(self, id: str) -> str:
        if id not in self._runs:
            number = len(self._runs)
            self._runs[id] = chr(ord("A") + number % 26) + (str(number // 26) if number > 25 else "")
        return self._runs[id]

    def message(self, id: str) -> str:
        if id in self._runs:  # a child run owns its parent's step
            return self._runs[id]
        return self._messages.setdefault(id, f"m{len(self._messages) + 1}") if id else "nobody"

    def held(self, held: Sequence[Held]) -> str:
        return " ".join(f"{self.message(each.message_id)}:{each.number}" for each in held) or "nothing"

    def text(self, text: str) -> str:
        """`text` with every id it holds replaced by its name."""
        for table in (self._runs, self._messages):
            for id in sorted(table, key=len, reverse=True):
                text = text.replace(id, table[id])
        return text


def asked(names: Names, call: ScriptCall) -> str:
    """A script call in a few words."""
    args = call.args
    match call.script:
        case "append" | "settle":
            return f"{call.script} {_transition(names, args)}"
        case "take":
            return f"take runs≤{args[1]} steps≤{args[2]} of {'+'.join(args[3])}{' empty' if args[4] else ''}"
        case "step_claim":
            steps = [f"{step} with {names.message(id)}:{number}" for id, number, step in args[2]]
            return f"claim {names.run(args[0])} {', '.join(steps)}"
        case "run_read":
            return f"read {names.run(args[0])} after {args[1]}"
        case "message_defer":
            held = [Held(*item) for item in args[1]]
            return f"defer {names.held(held)} in {args[2]}"
        case "run_refuse":
            return f"refuse {names.run(args[0])} {names.held([Held(*item) for item in args[2]])}: {args[3]}"
        case _:
            return f"{call.script} {' '.join(names.run(run) for run in call.runs)}"


def _transition(names: Names, args: list[Any]) -> str:
    carrier = f"{names.message(args[1][0])}:{args[1][1]}" if args[1][0] else "no message"
    parts = [f"{names.run(args[0])} under {carrier} seq {args[2]} seen {args[3]}"]
    position = f"{args[4][0]}@{args[4][1]}" if args[4] else "-"
    parts.append(f"at {position}{' ahead' if args[5] else ''}")
    groups = [
        ("facts", [f"{fact[0]} {fact[1]} e{fact[4]}" for fact in args[6]]),
        ("decisions", [f"{d[0]} {d[1]}".strip() for d in args[7]]),
        ("sends", [_send(send) for send in args[9]]),
        ("withdraws", list(args[10])),
        ("settles", [f"{names.message(item[0])}:{item[1]}" for item in args[11]]),
    ]
    parts += [f"{name}[{', '.join(items)}]" for name, items in groups if items]
    if args[12]:
        parts.append("table")
    return " ".join(parts)


def _send(send: list[Any]) -> str:
    due = send[4] or send[5]
    return f"{send[1]} due {due}" if due else str(send[1])


def answered(names: Names, call: ScriptCall, reply: list[Any]) -> str:
    """A reply in a few words."""
    word = reply[0].decode()
    match call.script:
        case "append" | "settle" if word != "not_found":
            judged = ",".join(each.decode() for each in reply[2])
            decided = ",".join(each.decode() for each in reply[3] if each != b"ok")
            more = " unsettled" if reply[1] else ""
            more += f" facts({judged})" if judged else ""
            more += f" refused({decided})" if decided else ""
            position = f"{reply[7][0]}@{reply[7][1]}"
            stands = f"head {reply[6]} at {position} {reply[8].decode()}"
            return f"{word}{more} {stands} {_table(names, reply[12])}".rstrip()
        case "take":
            rows = [
                f"{names.message(row[0].decode())}:{row[1]} {row[2].decode()} "
                f"{names.run(row[3].decode())}.{row[4].decode()}#{row[6]}"
                for row in reply[1]
            ]
            return f"{', '.join(rows) or 'nothing'}; due in {reply[2]}{' crowded' if reply[3] else ''}"
        case "step_claim":
            claims = [(row[0].decode(), row[1], row[2]) for row in reply[4]]
            return ", ".join(f"{w} e{slot}" if w == "ok" else f"{w} left {left}" for w, slot, left in claims)
        case "run_read" if word == "ok":
            stands = f"head {reply[2]} at {reply[3][0]}@{reply[3][1]} {reply[4].decode()}"
            return f"{stands} {_table(names, reply[8])}"
        case "message_defer":
            return " ".join(each.decode() for each in reply[1])
        case _:
            return word


def _table(names: Names, table: Any) -> str:
    if table == 0:
        return ""
    steps = []
    for id, state, mode, owner, number, live, *_ in table[0]:
        owned = f"({mode.decode()} {names.message(owner.decode())}:{number}{'' if live else ' dead'})"
        steps.append(f"{id.decode()} {state.decode()}{owned if mode else ''}")
    return f"table[{', '.join(steps)}]"
