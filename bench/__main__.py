"""The driver: every scenario in turn, results on the screen and in files."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .figures import Result
from .machine import describe
from .plots import can_draw, draw
from .report import as_json, as_markdown, table_of
from .scale import Scale

SCENARIOS = (
    "floors",
    "costs",
    "steps",
    "first_step",
    "fan_out",
    "waits",
    "replay",
    "throughput",
    "peers",
    "growth_steps",
    "growth_fan_out",
    "growth_runs",
    "growth_payload",
    "growth_log",
    "worker_memory",
)
RESULTS = Path(__file__).parent / "results"


async def measure(name: str, scale: Scale) -> Result:
    """Run one scenario."""
    scenario = importlib.import_module(f"bench.scenarios.{name}")
    result: Result = await scenario.measure(scale)
    return result


async def main(arguments: Sequence[str]) -> int:
    asked = _parse(arguments)
    scale = Scale.QUICK if asked.quick else Scale.FULL
    environment = await describe()
    results: dict[str, Result] = {}
    for name in asked.only or SCENARIOS:
        began = time.perf_counter()
        results[name] = await measure(name, scale)
        print(f"\n{name} ({time.perf_counter() - began:.1f} s)\n\n{table_of(results[name])}", flush=True)
    if not asked.quick or asked.out != RESULTS:
        _write(asked.out, environment, results)
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look, under a minute; writes no files")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for JSON, Markdown and pictures")
    return parser.parse_args(arguments)


def _write(out: Path, environment: dict[str, str], results: dict[str, Result]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "figures.json").write_text(as_json(environment, results), encoding="utf-8")
    (out / "figures.md").write_text(as_markdown(environment, results), encoding="utf-8")
    for name, result in results.items():
        if result.growth is not None and can_draw():
            draw(result.growth, out / f"{name}.png")
    print(f"\nwritten to {out}" + ("" if can_draw() else "; no pictures, matplotlib is not installed"))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends what it has started
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    sys.exit(asyncio.run(main(sys.argv[1:])))
