"""Of a recorded failure the line of the user's code is named, and what lies under it."""

import pytest

from worker.sdk.errors import FatalError, error_text
from worker.sdk.history import chain_of, raised_at

ENGINE = "/app/.venv/lib/python3.13/site-packages/worker/executors/asynchronous.py"
PYTHON = "/usr/lib/python3.13/asyncio/tasks.py"
OURS = "/srv/app/jobs.py"
HTTPX = "/app/.venv/lib/python3.13/site-packages/httpx/_client.py"
INSTALLED = "/app/.venv/lib/python3.13/site-packages/shop/jobs.py"


def failure(error: Exception, *files: str) -> Exception:
    """An error as read back: with the text of its traceback, one frame of each file."""
    frames = [f'  File "{file}", line {n}, in f{n}\n    code()\n' for n, file in enumerate(files, 1)]
    error.__dict__["__remote_traceback__"] = "".join(frames)
    return error


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ((ENGINE, OURS, OURS), f"{OURS}:3 in f3"),
        ((ENGINE, OURS, HTTPX), f"{OURS}:2 in f2"),
        ((ENGINE, INSTALLED, HTTPX), f"{INSTALLED}:2 in f2"),
        ((ENGINE, OURS, PYTHON, ENGINE), f"{OURS}:2 in f2"),
        ((ENGINE, "<frozen importlib._bootstrap>"), ""),
        ((r"C:\venv\Lib\site-packages\worker\runtime\body.py", r"C:\app\jobs.py"), "C:/app/jobs.py:2 in f2"),
        ((), ""),
    ],
)
def test_the_deepest_line_of_the_users_code(files: tuple[str, ...], place: str) -> None:
    assert raised_at(failure(ValueError("no"), *files)) == place


def test_the_root_of_a_chain_is_where_to_look() -> None:
    error = failure(FatalError("last attempt"), OURS)
    error.__cause__ = failure(KeyError("sku"), OURS, OURS)
    assert raised_at(error) == f"{OURS}:2 in f2"
    assert [error_text(each) for each in chain_of(error)] == ["FatalError: last attempt", "KeyError: 'sku'"]


def test_the_first_member_stands_for_a_group() -> None:
    group = ExceptionGroup("two", [failure(ValueError("a"), OURS), ValueError("b")])
    assert raised_at(group) == f"{OURS}:1 in f1"
    assert [error_text(each) for each in chain_of(group)][1:] == ["ValueError: a"]
