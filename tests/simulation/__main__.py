"""``python -m tests.simulation --seed N`` replays one schedule; ``--seeds 0:20000`` runs many, and so does
``--seeds 7,2355,5220``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable

from tests.servers import start_test_server

from .cast import wf
from .schedule import Broken, Schedule
from .store import Store


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one, every step printed")
    parser.add_argument("--seeds", default="0:1000", help="first:last (exclusive), numbers, or both")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    args = parser.parse_args()
    wf.resolve()
    with start_test_server() as server:
        store = Store(server.url)
        if args.seed is not None:
            return _replay(store, args.seed)
        return _many(store, _seeds(args.seeds), keep_going=args.keep_going)


def _seeds(text: str) -> Iterable[int]:
    """``0:3,7`` is 0, 1, 2 and 7."""
    for part in text.split(","):
        first, _, last = part.partition(":")
        yield from range(int(first), int(last) if last else int(first) + 1)


def _replay(store: Store, seed: int) -> int:
    try:
        Schedule(seed, store, verbose=print).run()
    except Broken as broken:
        print("\nBROKEN", *broken.problems, sep="\n")
        return 1
    print("\nas it must be")
    return 0


def _many(store: Store, seeds: Iterable[int], *, keep_going: bool) -> int:
    started, broken = time.monotonic(), []
    for done, seed in enumerate(seeds, 1):
        try:
            Schedule(seed, store).run()
        except Broken as error:
            broken.append(seed)
            print(f"seed {seed}: {error.problems[0]}", flush=True)
            if not keep_going:
                print(error)
                break
        if done % 200 == 0:
            rate = done / (time.monotonic() - started)
            so_far = f"{done} schedules, {rate:.1f}/s, {store.calls} script calls"
            print(f"… {so_far}, broken: {len(broken)}", flush=True)
    print(f"{time.monotonic() - started:.1f} s, broken: {broken or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of text is part of a schedule
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
