"""The image and the composition, as far as they can be read without a Docker engine."""

import json
import re
import tomllib
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pytest

from tests.acceptance.kit import ROOT
from tests.ops.kit import OPS
from worker.cli.exporter import DEFAULT_PORT
from worker.cli.main import cli
from worker.settings import DEFAULT_METRICS_PORT, Settings

COMPOSE = (OPS / "compose.yaml").read_text()
DEMO = (OPS / "demo" / "Dockerfile").read_text()


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, arguments) with continued lines joined and comments dropped."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


IMAGE = instructions((ROOT / "Dockerfile").read_text())
LAST_STAGE = IMAGE[max(index for index, (word, _) in enumerate(IMAGE) if word == "FROM") :]


def said(word: str) -> str:
    (found,) = [rest for each, rest in LAST_STAGE if each == word]
    return found


def sources_of_the_build() -> list[str]:
    found = []
    for word, rest in IMAGE:
        if word == "COPY" and "--from" not in rest:
            found += rest.split()[:-1]
        found += [
            match[1] for match in re.finditer(r"--mount=type=bind,source=([^,\s]+)", rest) if word == "RUN"
        ]
    return found


@pytest.mark.parametrize("source", sources_of_the_build())
def test_what_the_image_is_made_of_is_there_and_sent_to_the_engine(source: str) -> None:
    assert (ROOT / source).exists()
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert any(fnmatch(source, pattern) or source.startswith(f"{pattern}/") for pattern in kept)


def test_what_the_wheel_needs_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {
        project["project"]["readme"],
        *project["project"]["license-files"],
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    }
    assert needed <= set(sources_of_the_build())


def test_it_runs_as_a_number_that_is_not_root() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said("USER"))


def test_signals_reach_the_worker() -> None:
    assert json.loads(said("ENTRYPOINT")) == ["tini", "--", "worker"]


def test_every_worker_hashes_alike_and_writes_no_bytecode() -> None:
    variables = dict(pair.split("=") for pair in said("ENV").split())
    assert variables["PYTHONHASHSEED"] == "0"
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"


def test_only_pinned_packages_come_from_an_index() -> None:
    for word, rest in IMAGE:
        if word == "RUN" and "pip install" in rest:
            assert "--require-hashes" in rest or "--no-index" in rest, rest


def test_the_health_check_asks_the_endpoint_that_is_exposed() -> None:
    check = said("HEALTHCHECK").partition("CMD ")[2]
    assert json.loads(check) == ["worker", "health"]
    assert int(said("EXPOSE")) == DEFAULT_METRICS_PORT


# --- the user's image --------------------------------------------------------------------------------


def test_the_users_image_is_six_lines_on_this_release() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    words = [word for word, _ in instructions(DEMO)]
    assert words == ["FROM", "USER", "COPY", "RUN", "USER", "CMD"]
    assert DEMO.startswith(f"FROM stepfleet:{version}\n")
    assert f"USER {said('USER')}\n" in DEMO


def test_the_page_shows_the_image_that_is_built() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    (block,) = re.findall(r"```dockerfile\n(.*?)```", page, re.DOTALL)
    assert block == DEMO.replace("worker.demo:wf", "app.jobs:wf")


# --- the composition -----------------------------------------------------------------------------------


def test_every_file_the_composition_mounts_or_builds_is_there() -> None:
    places = re.findall(r"(?:- |build: )(\./[\w./-]+)", COMPOSE)
    assert len(places) == 5
    for place in places:
        assert (OPS / place).exists(), place


def test_redis_keeps_what_it_is_given() -> None:
    words = re.findall(r"^      - \"?([^\"\n]+)\"?$", COMPOSE, re.MULTILINE)
    options = dict(pairwise(words))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_stopping_takes_longer_than_draining() -> None:
    grace = re.search(r"stop_grace_period: (\d+)s", COMPOSE)
    assert grace is not None
    assert int(grace[1]) >= Settings.model_fields["drain_seconds"].default + 5


def test_images_have_a_version() -> None:
    images = re.findall(r"image: (\S+)", COMPOSE)
    assert images
    assert all(re.search(r":v?\d+\.\d+", image) for image in images), images


def test_passwords_are_those_of_the_users_of_redis() -> None:
    users = dict(
        re.findall(r"^user (\w+) on >(\S+)", (OPS / "redis" / "users.acl").read_text(), re.MULTILINE)
    )
    assert dict(re.findall(r"redis://(\w+):\$\{\w+:-([^}]+)\}@", COMPOSE)) == users


def test_the_exporter_is_asked_where_it_listens() -> None:
    assert f'"worker", "health", "--port", "{DEFAULT_PORT}"' in COMPOSE
    scraped = (OPS / "prometheus" / "prometheus.yml").read_text()
    assert re.findall(r"names: \[(\w+)\]\n +type: A\n +port: (\d+)", scraped) == [
        ("worker", str(DEFAULT_METRICS_PORT)),
        ("exporter", str(DEFAULT_PORT)),
    ]


def test_commands_of_the_images_exist() -> None:
    started = [json.loads(rest)[0] for word, rest in instructions(DEMO) if word == "CMD"]
    started += re.findall(r'command: \["(\w+)"\]', COMPOSE)
    assert set(started) == {"run", "exporter"} <= set(cli.commands)


def test_nothing_of_ours_is_left_unmounted_by_grafana() -> None:
    provider = (OPS / "grafana" / "provisioning" / "dashboards" / "fleet.yml").read_text()
    folder = re.search(r"path: (\S+)", provider)
    assert folder is not None
    assert f"./grafana/fleet.json:{folder[1]}/fleet.json:ro" in COMPOSE
    assert Path(OPS, "grafana", "provisioning", "datasources").is_dir()
