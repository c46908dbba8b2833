# stepfleet: what a developer runs. For GNU make 3.81 (macOS) and for paths with spaces: targets
# are relative, and every path in a recipe is quoted.
#
#   make demo           a worker is killed in the middle of a step, and the run goes on
#   make test           what must pass before a change is merged
#   make lint           its first part: style, format, types
#   make format         lets ruff repair style and format
#   make test-pythons   the body loop on every other CPython of this machine, and on 3.14
#   make bench          figures of this machine
#   make lock           pins the dependencies again (needs uv)
#   make clean          removes all that the above made
#
# PYTEST_ARGS goes to pytest: make test PYTEST_ARGS="--require-all -x tests/lua"

PYTEST_ARGS =
LOCK_ARGS   =

BIN = .venv/bin

.PHONY: help demo test lint format smoke test-pythons bench lock clean

help:
	@sed -n 's/^#   //p' Makefile

# --- the environment: made once, and again only when what it is made from changes ---------------

.venv/.runtime: requirements/runtime.lock requirements/build.lock pyproject.toml
	@sh requirements/bootstrap .venv runtime build
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check \
		--no-index --no-deps --no-build-isolation --editable .
	@touch "$@"

.venv/.dev: .venv/.runtime requirements/dev.lock
	@sh requirements/bootstrap .venv dev
	@touch "$@"

# --- what one runs -------------------------------------------------------------------------------

demo: .venv/.runtime
	@"$(BIN)/worker" demo

test: lint
	"$(BIN)/python" -m pytest $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory smoke

lint: .venv/.dev
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .
	"$(BIN)/mypy"

format: .venv/.dev
	"$(BIN)/ruff" check --fix .
	"$(BIN)/ruff" format .

# The wheel, installed where no source of ours can stand in for it.
smoke: .venv/.dev
	sh .ci/smoke

test-pythons: .venv/.dev
	sh .ci/pythons tests/core

bench: .venv/.runtime
	@"$(BIN)/python" -m bench

# --- pins ----------------------------------------------------------------------------------------

# Without index lines, and for every interpreter and platform at once. LOCK_ARGS=--upgrade takes
# newer releases; without it the pins stay unless pyproject.toml asks for others.
UV_COMPILE = uv pip compile pyproject.toml --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command "make lock" $(LOCK_ARGS)

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	$(UV_COMPILE) --extra embedded -o requirements/runtime.lock
	$(UV_COMPILE) --extra embedded --group dev \
		-c requirements/runtime.lock -o requirements/dev.lock
	uv pip compile --group build --quiet --no-config --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
		-c requirements/dev.lock -o requirements/build.lock $(LOCK_ARGS)
	@! grep -n "://" requirements/*.lock

clean:
	rm -rf .venv .build build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
