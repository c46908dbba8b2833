"""On a terminal of 80 columns ids, names and states stay whole."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner

from tests.cli.test_show import all_kinds
from tests.lua.kit import START_OF_TIME, StoreKit
from tests.ops.test_fleet import announce
from worker.cli.main import cli
from worker.cli.output import Grid, print_table
from world_redis.world import RedisWorld

WIDTH = 80
WORKER = "billing-worker-7d9f8b6c5d-x2x4z-1-abcdef"

Lines = Callable[..., list[str]]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output counts as a terminal of this width."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(WIDTH))


@pytest.fixture
def run_id(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, narrow: None) -> str:
    """A run with a step of every kind, and a worker with a long name."""
    monkeypatch.setenv("WORKFLOW_REDIS_URL", redis_url)
    monkeypatch.setenv("WORKFLOW_NAMESPACE", namespace)

    async def prepare() -> str:
        async with RedisWorld(redis_url, namespace=namespace) as world:
            kit = StoreKit(world, redis_url)
            await kit.clock.set(START_OF_TIME)
            await announce(world, WORKER, queues=["default", "side"])
            return await all_kinds(kit)

    return asyncio.run(prepare())


def lines(*arguments: str) -> list[str]:
    """What a command prints, no line too long, with single spaces."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    printed = [line.rstrip() for line in click.unstyle(result.stdout).splitlines()]
    assert [line for line in printed if len(line) > WIDTH] == []
    return [" ".join(line.split()) for line in printed]


def test_runs_are_listed_one_a_line(run_id: str) -> None:
    listed = lines("runs", "ls")
    assert any(line.startswith(f"{run_id} order running default 11-14 22:13") for line in listed)


def test_a_run_shows_its_steps_and_messages(run_id: str) -> None:
    shown = lines("runs", "show", run_id)
    assert "step 1 charge running c1 25.0 s its code" in shown
    assert "step 3 mail running worker-b 25.0 s its code" in shown
    assert any(line.startswith("step 4 fetch retrying its next attempt at") for line in shown)
    assert any(line.startswith("left out: epoch, mode, delivery") for line in shown)
    assert any("wake run default in flight c1" in line for line in shown)


def test_events_are_one_a_line(run_id: str) -> None:
    shown = lines("runs", "events", run_id)
    assert [line.split()[0] for line in shown] == ["slot", *(str(n) for n in range(1, len(shown)))]
    assert any(line.startswith("3 11-14 22:13 step_created step 1 charge") for line in shown)


def test_queues_and_workers(run_id: str) -> None:
    shown = lines("queues")
    assert any(line.startswith("side 1 ") for line in shown)
    assert any(line.startswith(WORKER) and line.endswith("at work") for line in shown)


def test_top_shows_who_holds_which_run(run_id: str) -> None:
    shown = lines("top", "--once", "--interval", "0.1")
    assert any(line.startswith(WORKER) and line.endswith("at work") for line in shown)
    assert any(line.startswith(f"{run_id} wake 25.0 s") for line in shown)


def test_each_setting_has_its_meaning_below_it(run_id: str) -> None:
    shown = lines("config")
    for setting, meaning in (
        ("WORKFLOW_PARTITIONS=1 (default)", "hash slots that new runs go to; only grows"),
        ("WORKFLOW_PARK_AFTER_SECONDS=600 (default)", "how long a run nobody can take on goes round"),
    ):
        assert shown[shown.index(setting) + 1] == meaning


# --- the rules ----------------------------------------------------------------------------------

COLUMNS = ("run", "name", "at (UTC)", "events", "detail")


def fitted(width: int | None, detail: str = "short", **options: bool) -> Grid:
    at = datetime.now(UTC) - timedelta(days=3)
    return Grid.of(
        COLUMNS, [("wrun_0001", "", at, 12, detail)], width=width, drop=("events", "at (UTC)"), **options
    )


def test_where_there_is_room_nothing_changes() -> None:
    for grid in (fitted(None), fitted(80)):
        assert (grid.columns, grid.left_out) == (COLUMNS, ())
        assert len(grid.rows[0][2]) == len("2030-01-01 12:00:00.000")


def test_times_are_shortened_and_empty_columns_go_before_others_are_dropped() -> None:
    grid = fitted(45)
    assert grid.columns == ("run", "at (UTC)", "events", "detail") and grid.left_out == ()
    assert len(grid.rows[0][1]) == len("01-01 12:00")
    assert fitted(30).left_out == ("events",)
    assert fitted(20).left_out == ("events", "at (UTC)")


def test_the_time_of_today_is_the_time_alone() -> None:
    now = datetime.now(UTC)
    grid = Grid.of(("run", "at"), [("wrun_0001", now)], width=20, drop=())
    assert grid.rows == [("wrun_0001", f"{now:%H:%M:%S}")]


def test_an_id_that_does_not_fit_makes_a_long_line(narrow: None, capsys: pytest.CaptureFixture[str]) -> None:
    name = "n" * 100
    print_table(("id", "name", "events"), [("run-1", name, 7)], empty="", drop=("events",))
    _, row, note = click.unstyle(capsys.readouterr().out).splitlines()
    assert row.split() == ["run-1", name]
    assert note.startswith("left out: events")


def test_a_pipe_gets_every_column_whole(capsys: pytest.CaptureFixture[str]) -> None:
    name = "n" * 300
    print_table(("id", "name", "events"), [("run-1", name, 7)], empty="", drop=("events",))
    _, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["run-1", name, "7"]


def test_text_is_wrapped_rather_than_made_a_long_line(
    narrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("WORKFLOW_" + "N" * 30, "https://" + "h" * 60, "default", "word " * 20)]
    print_table(("variable", "value", "from", "meaning"), rows, empty="")
    printed = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(map(len, printed)) <= WIDTH
    assert any(line.startswith(rows[0][0] + " ") for line in printed)
