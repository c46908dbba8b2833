"""Every ``WORKFLOW_*`` variable, as one model.

Read once per process by whoever starts something (`Settings.load`), then passed on; nothing else
looks at the environment. A bad value is an error that names the variable and its range, an unknown
variable is a warning that names the nearest known one.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Self, get_args, get_origin
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pydantic
from pydantic import Field, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from world_redis.safety import Durability

log = logging.getLogger("worker.settings")

PREFIX = "WORKFLOW_"
_URL_OPTIONS = re.compile(
    "db|username|password|client_name|socket_connect_timeout|socket_keepalive|protocol|ssl_[a-z_]+"
)
SCHEMES = ("redis", "rediss", "unix", "embedded")
MIN_LEASE, MAX_LEASE = 1, 900  # seconds
DEFAULT_METRICS_PORT = 9464
_NOT_SET = "WORKFLOW_REDIS_URL is not set"
MISSING_URL = (
    f"{_NOT_SET}: name the server, for example "
    "WORKFLOW_REDIS_URL=redis://localhost:6379/0, or use `worker dev`, which brings its own"
)

# What a field takes, where its type and bounds do not say it.
_IN_WORDS = {
    "inline_ownership_lease_seconds": f"a whole number from {MIN_LEASE} to {MAX_LEASE}",
    "namespace": "1 to 64 letters, digits, '_', '.' or '-'",
    "durability": "memory, fsync or replicas:N with N from 1",
    "build_id": "at most 64 visible ASCII characters, no spaces",
    "deployment_id": "at most 64 visible ASCII characters, no spaces",
}

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class SettingsError(ValueError):
    """A setting cannot be used; one line per setting, each names its variable and what it takes."""


class Shown(NamedTuple):
    """One setting as `worker config` shows it."""

    variable: str
    value: str  # secrets replaced
    source: str  # "default", "environment", "given", or "worker dev" where its server is found
    meaning: str


class Settings(BaseSettings):
    """What a process runs with. Frozen. Times are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    # --- where the runs are -----------------------------------------------------------------------

    redis_url: str = Field(
        "", repr=False, description="the server: redis:// rediss:// unix:// embedded:///dir"
    )
    namespace: str = Field(
        "wf", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="key prefix; two namespaces never see each other"
    )
    partitions: int = Field(1, ge=1, le=1024, description="hash slots that new runs go to; only grows")

    # --- ownership --------------------------------------------------------------------------------

    inline_ownership_lease_seconds: int = Field(
        30, description="how long a silent worker keeps what it runs; the same everywhere; clamped to 1-900"
    )
    inline_ownership: bool = Field(True, description="0: every pending step goes to the queue again")
    queue_owned_backstop: bool = Field(True, description="0: running queued steps are queued again at once")
    async_step_completed: bool = Field(
        False, description="1: a step may begin before the end of the one before it is recorded"
    )
    max_inline_steps: int = Field(3, ge=1, le=16, description="steps one run may have in flight here")

    # --- limits -----------------------------------------------------------------------------------

    live_runs: int = Field(1000, ge=0, description="suspended bodies kept; 0 replays at every wake")
    max_step_crashes: int = Field(5, ge=1, le=1000, description="a step with more worker deaths fails")
    max_queue_deliveries: int = Field(48, ge=1, le=10_000, description="hand-outs of a wake before it parks")
    park_after_seconds: float = Field(600, ge=0, description="how long a run nobody can take on goes round")
    loop_stall_seconds: float = Field(60, ge=1, description="a silent event loop ends the process")
    max_events: int = Field(25_000, ge=10, le=1_000_000, description="length of one run's log")
    max_payload_bytes: int = Field(1 << 20, ge=1024, le=64 << 20, description="size of one recorded value")
    retention_seconds: int = Field(7 * 86_400, ge=1, description="how long a finished run stays readable")

    # --- the process ------------------------------------------------------------------------------

    drain_seconds: float = Field(25, ge=0, le=3600, description="time that steps have to end at a stop")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description=f"0: a free one; not set: {DEFAULT_METRICS_PORT}, else a free one"
    )
    log_level: LogLevel = Field("INFO", description="of the records the command line writes")
    durability: str = Field(
        "memory", description="what an answer is worth: memory, fsync (on disk) or replicas:N"
    )
    strict: bool = Field(False, description="what is otherwise an error in the log is raised; for tests")
    build_id: str = Field("", pattern=r"^[\x21-\x7e]{0,64}$", description="names the code; not set: a hash")
    deployment_id: str = Field("", pattern=r"^[\x21-\x7e]{0,64}$", description="of new runs")

    @field_validator("inline_ownership_lease_seconds")
    @classmethod
    def _clamp_lease(cls, value: int) -> int:
        kept = min(MAX_LEASE, max(MIN_LEASE, value))
        if kept != value:
            log.warning("%s=%d is clamped to %d", variable_of("inline_ownership_lease_seconds"), value, kept)
        return kept

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        upper = value.upper() if isinstance(value, str) else value
        return upper if upper in get_args(LogLevel) else value  # a complaint shows what was given

    @field_validator("redis_url")
    @classmethod
    def _usable_url(cls, value: str) -> str:
        if value:
            _check_url(value)
        return value

    @classmethod
    def load(cls, **given: Any) -> Self:
        """The environment's settings; `given` (by field name; None means not given) wins over them.

        Raises:
            SettingsError: a value is of the wrong kind or out of range.
        """
        for line in unknown_variables(os.environ):
            log.warning(line)
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except pydantic.ValidationError as error:
            raise SettingsError("\n".join(_complaints(error))) from None

    @property
    def url(self) -> str:
        """The server's URL. Raises SettingsError when there is none."""
        if not self.redis_url:
            raise SettingsError(_missing_url())
        return self.redis_url

    @field_validator("durability")
    @classmethod
    def _known_durability(cls, value: str) -> str:
        Durability.parse(value)
        return value

    @property
    def durable(self) -> Durability:
        return Durability.parse(self.durability)

    @property
    def lease(self) -> float:
        """Seconds a delivery may be silent: visibility timeout, deadline and lease are one."""
        return float(self.inline_ownership_lease_seconds)

    def shown(self) -> list[Shown]:
        """Every setting for people: no secret in it."""
        rows = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            text = redact_url(value) if name == "redis_url" else _text(value)
            rows.append(Shown(variable_of(name), text, self._source(name), field.description or ""))
        return rows

    def _source(self, name: str) -> str:
        if name not in self.model_fields_set:
            return "default"
        return "environment" if os.environ.get(variable_of(name)) else "given"


def _missing_url() -> str:
    from .addresses import url_of_dev  # it needs our errors

    url = url_of_dev()
    if url is None:
        return MISSING_URL
    return f"{_NOT_SET}; for the server of the `worker dev` that runs here: WORKFLOW_REDIS_URL={url}"


def variable_of(field: str) -> str:
    """``max_events`` → ``WORKFLOW_MAX_EVENTS``."""
    return PREFIX + field.upper()


def unknown_variables(names: Iterable[str]) -> list[str]:
    """One line for every ``WORKFLOW_*`` name that means nothing here, with the nearest that does."""
    known = [field.upper() for field in Settings.model_fields]
    lines = []
    for name in sorted(names):
        rest = name.removeprefix(PREFIX)
        if rest != name and rest not in known:
            near = difflib.get_close_matches(rest, known, n=1, cutoff=0.7)
            near += [
                each for each in known if each.endswith(f"_{rest}")
            ]  # a part of a long name was left out
            hint = f"did you mean {PREFIX}{near[0]}?" if near else "`worker config` lists them"
            lines.append(f"{name} is not a setting; {hint}")
    return lines


def _check_url(url: str) -> None:
    """Raises ValueError with what a URL has to be; its text does not repeat the URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is not a URL; for example redis://localhost:6379/0") from None
    if parts.scheme not in SCHEMES:
        raise ValueError(f"must start with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    unknown = [name for name, _ in parse_qsl(parts.query) if not _URL_OPTIONS.fullmatch(name)]
    if unknown and parts.scheme != "embedded":
        raise ValueError(
            f"the option {unknown[0]!r} after the ? is none of db, username, password, client_name, "
            "socket_connect_timeout, socket_keepalive, protocol, ssl_…"
        )
    if parts.scheme not in ("redis", "rediss"):
        return
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("the port after the host must be a whole number from 1 to 65535")
    numbers = [parts.path.strip("/"), *(text for name, text in parse_qsl(parts.query) if name == "db")]
    if not all(number == "" or number.isdecimal() for number in numbers):
        raise ValueError("the database after the host must be a whole number, as in redis://host:6379/0")


def redact_url(url: str) -> str:
    """The URL with its password, wherever it stands, replaced by ``***``."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")  # an unquoted password may hold both marks
    user, colon, _ = login.partition(":")
    netloc = f"{user}:***@{host}" if at and colon else parts.netloc
    query = [(name, "***" if "password" in name else value) for name, value in parse_qsl(parts.query)]
    shown = urlunsplit(parts._replace(netloc=netloc, query=urlencode(query, safe="*/")))
    # An empty netloc loses its slashes on the way.
    return shown if "://" in shown else shown.replace(":", "://", 1)


def _complaints(error: pydantic.ValidationError) -> list[str]:
    lines = []
    for item in error.errors(include_url=False):
        name = str(item["loc"][0])
        field = Settings.model_fields.get(name)
        if field is None:
            lines.append(f"{name!r} is not a setting")
            continue
        given = "***" if name == "redis_url" else repr(item["input"])
        lines.append(f"{variable_of(name)}={given}: {_takes(field, item)}")
    return lines


def _takes(field: FieldInfo, item: Any) -> str:
    """What a field takes, in words: its range where it has one."""
    name = str(item["loc"][0])
    if item["type"] == "value_error" and name not in _IN_WORDS:
        return str(item["ctx"]["error"])
    default = f" (default {_text(field.default)})" if _text(field.default) else ""
    return f"must be {_kind(field, name)}{default}"


def _kind(field: FieldInfo, name: str) -> str:
    low, high = _bound(field, "ge"), _bound(field, "le")
    if name in _IN_WORDS:
        return _IN_WORDS[name]
    if field.annotation is bool:
        return "0 or 1"
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(get_args(field.annotation))}"
    kind = "a whole number" if field.annotation in (int, int | None) else "a number"
    if low is None:
        return kind
    return f"{kind} of at least {low}" if high is None else f"{kind} from {low} to {high}"


def _bound(field: FieldInfo, name: str) -> Any:
    return next((getattr(each, name) for each in field.metadata if hasattr(each, name)), None)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
