"""Celery with its Redis transport and no result backend; one child of its default pool."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from celery import Celery

from ..marks import mark

app = Celery("bench", broker=f"redis+socket://{unquote(urlsplit(os.environ['BENCH_URL']).path)}")


@app.task(ignore_result=True)
def task() -> None:
    mark()


async def fill(count: int) -> None:
    for _ in range(count):
        task.delay()
