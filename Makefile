# Two commands on a fresh machine: `make quickstart` and `make test`. Both need only python3 and make.
# Everything runs as `python -m ...`: script shebangs break in a path with spaces.

PYTHON ?= python3
PY := .venv/bin/python
INSTALL := $(PY) -m uv pip install --quiet --python $(PY) --constraint constraints.txt --editable

.PHONY: help quickstart test test-all browser lint clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

quickstart: .venv/installed ## train the baseline and the Bayesian method on real digits, two minutes
	@$(PY) -m bayesdg quickstart

test: .venv/installed-dev ## the test suite, a few minutes
	@$(PY) -m pytest

test-all: .venv/installed-dev browser ## everything, with slow, browser, GPU and data tests
	@$(PY) -m pytest -m ''

# Tests that open the report skip where there is none.
browser:
	@command -v chromedriver > /dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "installing chromium and chromedriver"; \
	  apt-get install --yes --quiet chromium chromium-driver > .venv/browser 2>&1 || \
	  { apt-get update --quiet > .venv/browser 2>&1 && \
	  apt-get install --yes --quiet chromium chromium-driver >> .venv/browser 2>&1; } || \
	  echo "that failed (.venv/browser says why); the tests that need a browser are skipped"; \
	else echo "no chromedriver: the tests that need a browser are skipped; as root, apt-get install chromium chromium-driver brings it"; fi

lint: .venv/installed-dev ## ruff and mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

clean: ## remove the environment and every cache
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bayesdg needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@echo "creating .venv"
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check uv
	@touch $@

.venv/installed: .venv/uv pyproject.toml constraints.txt
	@echo "installing bayesdg and its dependencies"
	@$(INSTALL) .
	@touch $@

.venv/installed-dev: .venv/installed
	@echo "installing the development tools"
	@$(INSTALL) '.[dev]'
ifdef PYTHONDONTWRITEBYTECODE
	@echo "compiling: Python may not do it as it goes here, and would do it at every start"
	@PYTHONDONTWRITEBYTECODE= $(PY) -m compileall -q -j 0 .venv/lib src > .venv/compiling 2>&1 || true
endif
	@touch $@
