"""Fixtures of the command line's tests."""

import os
from pathlib import Path

import pytest

from tests.cli.processes import APP, Process

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def process(tmp_path: Path, redis_url: str, namespace: str) -> Process:
    (tmp_path / "app.py").write_text(APP)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("WORKFLOW_") and name != "PYTHONHASHSEED"
    }
    return Process(
        tmp_path,
        {
            **kept,
            "WORKFLOW_REDIS_URL": redis_url,
            "WORKFLOW_NAMESPACE": namespace,
            "PYTHONPATH": str(REPOSITORY),
        },
    )
