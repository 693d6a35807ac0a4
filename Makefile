# One entry for everything: each target sets up what it needs, alone, on a machine with Python 3.11+ and make.
VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that starts and is new enough (a shim may exist and not start).
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
WORKERS ?= 2

.PHONY: setup demo test test-slow test-browser lint bench docs figures study dist clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "trust-cache needs Python 3.11 or newer: none was found" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[extract,openvino,huggingface,cluster,dev]"
	touch $@

demo: setup
	$(BIN)/trust-cache demo --out demo

test: setup
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow and not browser"

test-slow: setup
	$(BIN)/python -m pytest -q -n $(WORKERS) -m slow

# One process: a browser takes both cores. Without chromium the tests are skipped, in CI they fail.
test-browser: setup
	$(BIN)/python -m pytest -q -m browser

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m benchmarks

# The site into site/: a warning is an error, and nothing is fetched from the network.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# The figures and tables of the pages, again: minutes, and hours if nothing is there.
figures: setup
	$(BIN)/python docs/make_statistics_figures.py --page docs/statistics.md docs/choosing.md
	$(BIN)/python docs/make_coverage_tables.py --page docs/coverage.md
	$(BIN)/python docs/make_comparison_figures.py --page docs/comparison.md
	$(BIN)/python docs/simulate_training_noise.py --page docs/comparison.md
	$(BIN)/python docs/rivals_numbers.py
	$(BIN)/python docs/rivals_models.py --page docs/rivals.md
	$(BIN)/python docs/simulate_scale.py
	$(BIN)/python docs/make_report_picture.py
	$(BIN)/python docs/refresh_notebooks.py

# The study of the closed loop: about two hours on two cores; rows that are there are not made again.
study: setup
	$(BIN)/python docs/make_study.py --page docs/study.md

# What a release uploads: the source archive and the wheel, checked.
dist: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) demo dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
