# Every target sets up what it needs: a clean clone and Python >= 3.11 are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOWEST := .venv-lowest

.PHONY: setup demo bench lint test test-all test-lowest test-browser clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/inducing demo --out demo

bench: setup
	$(BIN)/inducing bench

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow and not browser"

test-all: lint
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not browser"

# the oldest supported versions, in an environment of their own
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n auto --dist loadfile -m "not slow and not browser"

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt --editable '.[test,tensorboard]'
	touch $@

# reports in a real browser: apt install chromium
test-browser: setup
	$(BIN)/python -m pytest -m browser

clean:
	rm -rf $(VENV) $(LOWEST) demo dist build
