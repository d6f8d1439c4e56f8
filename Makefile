# Every target sets up what it needs in .venv, once.
PYTHON ?= python3
BIN := .venv/bin
# `make test EXTRAS=dev,ops` also tests the image and the chart.
EXTRAS ?= dev

.PHONY: demo test lint bench soak docs clean

demo: .venv/.runtime
	$(BIN)/baseten-exporter demo $(ARGS)

test: .venv/.dev
	$(BIN)/pytest $(ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.dev
	$(BIN)/python -m benchmarks $(ARGS)

soak: .venv/.dev
	$(BIN)/python -m tests.soak $(ARGS)

docs: .venv/.dev
	$(BIN)/python -m tools.metrics_page
	$(BIN)/python -m tools.config_page
	$(BIN)/python -m tools.chart_values
	$(BIN)/python -m tools.dashboards
	$(BIN)/python -m tools.status_schema

clean:
	rm -rf .venv build dist *.egg-info .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

# The dev install brings all that the runtime needs.
.venv/.runtime: pyproject.toml | .venv/bin/python
	test .venv/.dev -nt pyproject.toml || $(BIN)/pip install --quiet --editable .
	touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@
