# From nothing but python3 (3.11 or newer) and make:
#   make run    set up, then ask the embedded model the cheap tier
#   make test   set up, then every check that CI makes; each stage is a target too
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Modules are compiled when they are first imported, as most never are; for that, Python must be allowed to keep the
# result, whatever the environment says: compiling everything in every process takes longer than most commands.
export PYTHONDONTWRITEBYTECODE :=
OPTIONS := -q --disable-pip-version-check --no-deps --no-compile
INSTALL := INSTALL_OPTIONS="$(OPTIONS)" $(BIN)/python .ci/install.py
COMPILE = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header

.DELETE_ON_ERROR:
.PHONY: run test python setup setup-test system lint types layers docs tests slow coverage reference screenshots lock benchmarks clean help

help:            ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 16

run: setup       ## set up, then the cheap tier on the embedded model: no key, no account
	$(BIN)/pramana run

test: python     ## everything CI checks, stage by stage
	+@MAKE="$(MAKE)" VENV="$(VENV)" exec $(PYTHON) .ci/stages.py  # exec: a signal to make must reach it

setup: $(VENV)/.run
setup-test: $(VENV)/.dev

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Pramana needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'

# One environment, two locks: `make run` needs the first only, `make test` adds the second.
$(VENV)/.run: requirements/run.txt pyproject.toml | python
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@[ "$$(uname)" != Linux ] || .ci/system-tools libgomp.so.1:libgomp1  # which the embedded model is linked with
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) requirements/run.txt
	$(BIN)/python -m pip install $(OPTIONS) --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(INSTALL) requirements/dev.txt
	@touch $@

system:          ## Chromium, curl and jq, which the tests drive
	@.ci/system-tools curl jq
	@for each in chromium-headless-shell chromium chromium-browser; do command -v $$each >/dev/null && exit 0; done; \
	.ci/system-tools chromium-headless-shell 2>/dev/null || .ci/system-tools chromium

lint: setup-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup-test
	$(BIN)/mypy

layers: setup-test
	$(BIN)/lint-imports

docs: setup-test ## build the documentation, warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

tests: setup-test
	$(BIN)/pytest -q -n 4 --dist loadfile --no-loadscope-reorder --claims

slow: setup-test system  ## the proofs that CI leaves out, and every property with all of its examples
	$(BIN)/pytest -q -n 2 --dist loadfile --slow -m slow
	$(BIN)/pytest -q -n 2 --dist loadfile --hypothesis-profile=full tests/property tests/store tests/load tests/show/api/test_scenarios.py

coverage: setup-test system  ## the same tests, and which lines none of them reaches; fails below 97.5 %
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder --claims --cov --cov-report=term

reference: setup-test  ## write docs/cli.md and docs/claims.md again from the program
	$(BIN)/python docs/reference.py

screenshots: setup-test system  ## take the pictures of docs/workbench.md again; those that no page shows go to docs/pictures/all
	$(BIN)/python -m docs.screenshots

lock: setup-test ## write both locks again from pyproject.toml; no host is named in them, so mirrors work
	$(COMPILE) --extra local --extra server --extra voice --group build --group weights pyproject.toml -o requirements/run.txt $(LOCK_ARGS)
	$(COMPILE) --extra local --extra server --extra voice --group build --group weights --group dev pyproject.toml -c requirements/run.txt -o requirements/dev.txt $(LOCK_ARGS)

benchmarks: setup-test  ## the slow proofs, one after another; docs/proofs.md holds their last results
	$(BIN)/python -m benchmarks.yaml_positions
	$(BIN)/python -m benchmarks.suite_memory
	$(BIN)/python -m benchmarks.mutations
	$(BIN)/python -m benchmarks.similarity
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.run_memory
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.frames
	$(BIN)/python -m benchmarks.round_trip
	$(BIN)/python -m benchmarks.evidence_guard
	$(BIN)/pramana selftest voice
	$(BIN)/python -m benchmarks.server
	$(BIN)/python -m benchmarks.api_fuzz
	$(BIN)/python -m benchmarks.server_stress
	$(BIN)/python -m benchmarks.pages

clean:           ## remove what was built, keep the sources
	rm -rf $(VENV) docs/_build .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
