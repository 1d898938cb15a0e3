# Everything from a bare Python 3.11+: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo serve test test-fast test-long lint imports types unit docs dist provenance clean
.DEFAULT_GOAL := demo

demo: $(READY)
	$(BIN)/graphforget demo

# The request service on the patients graph, with a token printed.
serve: $(READY)
	$(BIN)/graphforget serve trial

# Everything but the tests marked long.
test: lint imports types docs unit

# The daily loop: under 90 seconds on two cores.
test-fast: lint imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not long and not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

imports: $(READY)
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not long"  # one thread for each of the two workers

# The documentation as a site in build/site. No page loads anything from a network.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel and the source distribution in dist/, checked.
dist: $(READY)
	rm -rf dist build/lib
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

# Lists the tables and figures whose sources have changed since they were made. It warns only.
provenance: $(READY)
	$(BIN)/python docs/site/provenance.py

# What takes too long for every change: at most 45 minutes on two cores.
test-long: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long --dist load

# torch comes first and alone: with its pinned build in place nothing else pulls a larger one.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "graphforget needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
