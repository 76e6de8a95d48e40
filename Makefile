# Everything here works from a fresh clone with Python 3.11+ and make: each target creates .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONWARNDEFAULTENCODING =

.PHONY: demo test check lint test-slow mutants certify-check bench bench-full format clean

demo: .venv/demo
	$(BIN)/python examples/plot_do_error_bars_help.py build/demo
	$(BIN)/python examples/plot_certified_intervals.py build/demo
	$(BIN)/python examples/plot_how_it_degrades.py build/demo

test test-slow: export OMP_NUM_THREADS = 1

test: .venv/test
	$(BIN)/python -m pytest -n 2 -q

test-slow: .venv/test
	$(BIN)/python -m pytest -n 2 -q -m slow

check: lint test

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

mutants: .venv/test
	$(BIN)/python tests/mutants.py

certify-check: .venv/test
	$(BIN)/python tests/certify_check.py 1000000

bench bench-full: export OMP_NUM_THREADS = 1

bench: .venv/test
	$(BIN)/python -c "import holdfast; holdfast.compile()"
	$(BIN)/python benchmarks/run.py --quick

bench-full: .venv/test
	$(BIN)/python -c "import holdfast; holdfast.compile()"
	$(BIN)/python benchmarks/run.py

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build

.venv/pip:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -U "pip>=25.1"
	@touch $@

.venv/demo: .venv/pip pyproject.toml
	$(BIN)/python -m pip install -q -e . --group demo
	@touch $@

.venv/test: .venv/pip pyproject.toml
	$(BIN)/python -m pip install -q -e . --group test
	@touch $@ .venv/demo

.venv/dev: .venv/pip pyproject.toml
	$(BIN)/python -m pip install -q -e . --group dev
	@touch $@ .venv/test .venv/demo
