"""Results as JSON and as Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict

from .figures import Figure, Growth, Result


def as_json(environment: Mapping[str, str], results: Mapping[str, Result]) -> str:
    content = {
        "environment": dict(environment),
        "scenarios": {name: asdict(result) for name, result in results.items()},
    }
    return json.dumps(content, indent=1) + "\n"


def as_markdown(environment: Mapping[str, str], results: Mapping[str, Result]) -> str:
    parts = ["# Figures\n", "| | |\n|---|---|"]
    parts += [f"| {name} | {value} |" for name, value in environment.items()]
    for name, result in results.items():
        parts.append(f"\n## {name.replace('_', ' ')}\n")
        parts.append(table_of(result))
    return "\n".join(parts) + "\n"


def table_of(result: Result) -> str:
    """A result's figures, then its growth."""
    lines = []
    if result.figures:
        lines = ["| what | figure | ratio | target | |", "|---|---:|---:|---|---|"]
        lines += [_row(figure) for figure in result.figures]
    if result.figures and result.growth:
        lines.append("")
    if result.growth:
        lines += _grown(result.growth)
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    met = {True: "met", False: "**not met**", None: ""}[figure.met]
    ratio = "" if figure.ratio is None else f"{_number(figure.ratio)} {figure.of}"
    return f"| {figure.name} | {_number(figure.value)} {figure.unit} | {ratio} | {figure.target} | {met} |"


def _grown(growth: Growth) -> list[str]:
    head = [f"| {' | '.join(growth.columns)} |", "|" + "---:|" * len(growth.columns)]
    return head + [f"| {' | '.join(_number(value) for value in row)} |" for row in growth.rows]


def _number(value: float) -> str:
    """Three digits that mean something."""
    if math.isnan(value):
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
