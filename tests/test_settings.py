"""Settings: what the environment may say, and what it is told when it says something else."""

import logging

import pytest

from worker.settings import MISSING_URL, Settings, SettingsError, redact_url, variable_of


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(variable_of(field), raising=False)


def test_defaults_need_no_environment() -> None:
    settings = Settings.load()
    assert (settings.namespace, settings.partitions, settings.lease) == ("wf", 1, 30.0)
    assert settings.max_inline_steps == 3 and settings.inline_ownership


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("WORKFLOW_MAX_INLINE_STEPS", "17", "whole number from 1 to 16 (default 3)"),
        ("WORKFLOW_PARTITIONS", "many", "whole number from 1 to 1024 (default 1)"),
        ("WORKFLOW_PARK_AFTER_SECONDS", "-1", "a number of at least 0"),
        ("WORKFLOW_NAMESPACE", "a b", "1 to 64 letters, digits"),
        ("WORKFLOW_STRICT", "perhaps", "0 or 1 (default 0)"),
        ("WORKFLOW_LOG_LEVEL", "loud", "must be one of DEBUG, INFO, WARNING"),
        ("WORKFLOW_METRICS_PORT", "70000", "from 0 to 65535"),
        ("WORKFLOW_METRICS_PORT", "http", "must be a whole number from 0 to 65535"),
        ("WORKFLOW_INLINE_OWNERSHIP_LEASE_SECONDS", "abc", "whole number from 1 to 900 (default 30)"),
        ("WORKFLOW_DURABILITY", "disk", "must be memory, fsync or replicas:N with N from 1 (default memory)"),
        ("WORKFLOW_BUILD_ID", "a b", "visible ASCII"),
    ],
)
def test_a_bad_value_names_the_variable_and_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as error:
        Settings.load()
    assert str(error.value).startswith(f"{variable}={value!r}: ")
    assert expected in str(error.value)


def test_every_bad_value_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_MAX_EVENTS", "1")
    monkeypatch.setenv("WORKFLOW_LIVE_RUNS", "-1")
    with pytest.raises(SettingsError) as error:
        Settings.load()
    assert {line.split("=")[0] for line in str(error.value).splitlines()} == {
        "WORKFLOW_MAX_EVENTS",
        "WORKFLOW_LIVE_RUNS",
    }


@pytest.mark.parametrize(("given", "kept"), [("0", 1), ("901", 900), ("900", 900), ("3", 3)])
def test_the_lease_is_clamped(monkeypatch: pytest.MonkeyPatch, given: str, kept: int) -> None:
    monkeypatch.setenv("WORKFLOW_INLINE_OWNERSHIP_LEASE_SECONDS", given)
    assert Settings.load().inline_ownership_lease_seconds == kept


def test_an_unknown_variable_is_a_warning_with_the_nearest_known_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_ULR", "redis://somewhere")
    monkeypatch.setenv("WORKFLOW_TOTALLY_ELSE", "1")
    monkeypatch.setenv("WORKFLOW_LEASE_SECONDS", "3")
    with caplog.at_level(logging.WARNING):
        Settings.load()
    assert "WORKFLOW_REDIS_ULR is not a setting; did you mean WORKFLOW_REDIS_URL?" in caplog.messages
    assert "WORKFLOW_TOTALLY_ELSE is not a setting; `worker config` lists them" in caplog.messages
    lease = "WORKFLOW_INLINE_OWNERSHIP_LEASE_SECONDS"
    assert f"WORKFLOW_LEASE_SECONDS is not a setting; did you mean {lease}?" in caplog.messages


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_DRAIN_SECONDS", "1")
    assert Settings.load(drain_seconds=2).drain_seconds == 2
    assert Settings.load(drain_seconds=None).drain_seconds == 1


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_MAX_EVENTS", "")
    assert Settings.load().max_events == 25_000


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.load().namespace = "other"  # type: ignore[misc]


def test_a_missing_url_names_its_variable() -> None:
    with pytest.raises(SettingsError, match="WORKFLOW_REDIS_URL is not set"):
        _ = Settings.load().url
    assert "worker dev" in MISSING_URL


def test_an_unknown_scheme_is_refused_and_the_url_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", "http://:hunter2@host")
    with pytest.raises(
        SettingsError, match="must start with one of redis://, rediss://, unix://, embedded://"
    ) as error:
        Settings.load()
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:hunter2@host:abc", "whole number from 1 to 65535"),
        ("redis://:hunter2@host:70000", "whole number from 1 to 65535"),
        ("redis://:hunter2@host/first", "the database after the host"),
        ("rediss://:hunter2@host/-1", "the database after the host"),
        ("redis://:hunter2@host?db=x", "the database after the host"),
        ("redis://:hunter2@[::1", "not a URL"),
        ("redis://:hunter2@host?decode_responses=True", "'decode_responses' after the ? is none of db,"),
        ("unix:///a.sock?max_connections=5&password=hunter2", "'max_connections' after the ?"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", url)
    with pytest.raises(SettingsError) as error:
        Settings.load()
    text = str(error.value)
    assert text.startswith("WORKFLOW_REDIS_URL=***: ") and said in text and "\n" not in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://u:p@host:6379/0",
        "rediss://[::1]:1?db=3",
        "unix:///a/b.sock?db=1",
        "rediss://host?ssl_ca_certs=/ca.pem&socket_keepalive=True&protocol=3",
        "embedded:///d",
    ],
)
def test_usual_urls_are_taken(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", url)
    assert Settings.load().url == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:hunter2@host:6379/0", "redis://user:***@host:6379/0"),
        ("rediss://:hunter2@host", "rediss://:***@host"),
        ("redis://host/0?password=hunter2&db=1", "redis://host/0?password=***&db=1"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
    ],
)
def test_a_shown_url_has_no_password(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_what_is_shown_has_no_secret_and_says_where_a_value_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORKFLOW_REDIS_URL", "redis://:hunter2@host")
    settings = Settings.load(max_events=100)
    rows = {row.variable: row for row in settings.shown()}
    assert rows["WORKFLOW_REDIS_URL"].value == "redis://:***@host"
    assert rows["WORKFLOW_REDIS_URL"].source == "environment"
    assert rows["WORKFLOW_MAX_EVENTS"].source == "given"
    assert rows["WORKFLOW_NAMESPACE"].source == "default"
    assert all(row.meaning for row in rows.values())
    assert "hunter2" not in repr(settings) + str(settings.shown())
