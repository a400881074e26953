# Every target sets up what it needs: a clean clone and Python >= 3.11 are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOWEST := .venv-lowest
SKPRO := .skpro

# each of the many processes of the tests would compile the package again
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo bench lint test test-portable test-all test-lowest test-skpro test-browser docs package clean

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

# the numerical tests as other processors round: four combinations, in which each setting occurs twice
PORTABLE = INDUCING_CHECK_SHAPES=0 $(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow" \
	tests/linalg tests/nn tests/saving --ignore tests/saving/test_fuzz.py --ignore tests/saving/test_mutants.py
test-portable: setup
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 INDUCING_TEST_THREADS=1 $(PORTABLE)
	ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 INDUCING_TEST_THREADS=1 $(PORTABLE)
	ATEN_CPU_CAPABILITY=default MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 INDUCING_TEST_THREADS=2 OMP_WAIT_POLICY=passive $(PORTABLE)
	ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 INDUCING_TEST_THREADS=2 OMP_WAIT_POLICY=passive $(PORTABLE)

test-all: lint
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not browser"

# the oldest supported versions, in an environment of their own
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n auto --dist worksteal -m "not slow and not browser"

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt --editable '.[test,tensorboard,skpro]'
	touch $@

# skpro needs an older pandas than the other tests, in a folder of its own before the environment
test-skpro: $(SKPRO)/.installed
	PYTHONPATH=$(SKPRO) $(BIN)/python -m pytest -m "not browser" tests/integrations/test_skpro.py "tests/test_readme.py::test_python_blocks_run[skpro]" \
		"tests/test_readme.py::test_docstring_examples[inducing.integrations.skpro]"

$(SKPRO)/.installed: constraints-skpro.txt $(INSTALLED)
	rm -rf $(SKPRO)
	$(BIN)/python -m pip install --quiet --no-deps --target $(SKPRO) --requirement constraints-skpro.txt
	touch $@

# reports in a real browser: apt install chromium
test-browser: setup
	$(BIN)/python -m pytest -m browser

# the documentation site; its tutorials are run, and run again only when their code changes
docs: $(VENV)/.docs-installed
	$(BIN)/python -m sphinx -W --keep-going --builder html docs docs/_build/html

$(VENV)/.docs-installed: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

# source distribution and wheel, and the wheel tried in an empty environment
package: setup
	$(BIN)/python -m build
	$(BIN)/python -m pytest tests/test_package.py -k empty_environment

clean:
	rm -rf $(VENV) $(LOWEST) $(SKPRO) demo dist build docs/_build
