# Two commands do everything: `make demo` and `make test`. See README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check


.PHONY: demo test lint bench check-all soak clean

# Each stamp file says that an extra is installed as pyproject.toml now asks for it.
$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade pip
	touch $@

$(VENV)/extra-%: $(VENV)/made pyproject.toml
	$(PIP) install -q -e ".[$*]"
	touch $@

demo: $(VENV)/extra-demo
	$(BIN)/labeled demo

test: $(VENV)/extra-test
	$(BIN)/python -m pytest -n 2 -q

lint: $(VENV)/extra-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry labeled

bench: $(VENV)/extra-bench
	$(BIN)/python -m benchmarks.run

# What takes longer: the oldest supported dependencies, other Pythons, the soak test.
check-all: test lint
	$(BIN)/python tests/check_all.py

soak: $(VENV)/extra-test
	HYPOTHESIS_PROFILE=soak LABELED_SOAK_S=300 $(BIN)/python -m pytest -n 2 -q --timeout 3600

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
