"""DBOS with its system database in SQLite: three steps a workflow. Its worker starts its runs itself."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import os
from pathlib import Path

from dbos import DBOS

from ..marks import mark

_COUNT = Path(os.environ["BENCH_DIRECTORY"], "dbos-count")
_DATABASE = Path(os.environ["BENCH_DIRECTORY"], "dbos.sqlite")


@DBOS.step()
def nothing(number: int) -> int:
    return number


@DBOS.step()
def last() -> None:
    mark()


@DBOS.workflow()
def three_steps(number: int) -> int:
    number = nothing(number)
    number = nothing(number)
    last()
    return number


async def fill(count: int) -> None:
    _COUNT.write_text(str(count))  # noqa: ASYNC240 - nothing else runs here


def main() -> None:
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{_DATABASE}"})
    DBOS.launch()
    for handle in [DBOS.start_workflow(three_steps, number) for number in range(int(_COUNT.read_text()))]:
        handle.get_result()


if __name__ == "__main__":
    main()
