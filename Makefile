# Everything a newcomer needs: `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint check format bench leakcheck mutants faults fuzz queries clean

demo: $(READY)
	$(BIN)/quartet inspect demo --draw out/demo-schema.svg
	$(BIN)/quartet task demo airport-late
	$(BIN)/quartet sample demo airport-late --draw out/demo-context.svg
	$(BIN)/quartet train demo airport-late --protocol rolling --time-limit 2m --runs out/runs
	$(BIN)/quartet evaluate out/runs/latest
	$(BIN)/quartet predict out/runs/latest demo --at 2013-12-01
	$(BIN)/quartet report out/runs/latest --at 2013-12-01 -o out/demo-report.html
	@echo "Pictures: out/demo-schema.svg, out/demo-context.svg, out/runs/latest/curves.svg, out/runs/latest/calibration-test-rolling.svg"
	@echo "A page about all of it, to open in a browser: out/demo-report.html"

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/graph.py
	$(BIN)/python benchmarks/samplers.py
	$(BIN)/python benchmarks/native.py --json out/bench/native.json
	$(BIN)/python benchmarks/cache.py --json out/bench/cache.json
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/relgt.py --json out/bench/relgt.json
	$(BIN)/python benchmarks/features.py
	$(BIN)/python benchmarks/score.py
	$(BIN)/quartet train demo airport-late --protocol rolling --time-limit 1m --runs out/bench
	$(BIN)/python benchmarks/kept.py out/bench/latest --json out/bench/kept.json
	$(BIN)/python benchmarks/threads.py --json out/bench/threads.json
	$(BIN)/python benchmarks/train.py --json out/bench/train.json
	$(BIN)/python benchmarks/scale.py --json out/bench/scale.json
	$(BIN)/python benchmarks/goals.py out/bench --json out/bench/goals.json

leakcheck: $(READY)
	$(BIN)/python -m benchmarks.leakcheck

mutants: $(READY)
	$(BIN)/python -m benchmarks.mutants

faults: $(READY)
	$(BIN)/python benchmarks/faults.py

fuzz: $(READY)
	$(BIN)/python -m benchmarks.fuzz

queries: $(READY)
	$(BIN)/python -m benchmarks.queries

# The constraints file pins what was tested together; without it newer releases may arrive.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[sql,relbench,demo,dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis out
