# Two commands do everything: `make demo` and `make test`. See README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check


.PHONY: demo test test-slow lint docs wheel bench check-all soak mutants clean

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
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

# Memory sampled in processes of their own, killed workers, damaged files: four minutes more.
test-slow: $(VENV)/extra-test
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m slow

lint: $(VENV)/extra-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/check_examples.py
	$(BIN)/lint-imports
	$(BIN)/python tests/test_plain_words.py
	$(BIN)/deptry labeled

# Warnings are errors; the pages are docs/_build/html/index.html.
docs: $(VENV)/extra-docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Wheel and sdist, each installed in an empty environment and tried there.
wheel: $(VENV)/extra-dev
	$(BIN)/python tests/smoke_wheel.py

bench: $(VENV)/extra-bench
	$(BIN)/python -m benchmarks.run

# What takes longer: odd parameters, damaged files, the oldest supported dependencies, other Pythons.
check-all: test test-slow lint docs wheel
	$(BIN)/python tests/odd_parameters.py
	$(BIN)/python tests/fuzz.py --minutes 1
	$(BIN)/python tests/check_all.py

soak: $(VENV)/extra-test
	HYPOTHESIS_PROFILE=soak LABELED_SOAK_S=300 $(BIN)/python -m pytest -n 2 --dist worksteal -q --timeout 3600

# Does a test notice when the way of a row is changed? Takes about an hour.
mutants: $(VENV)/extra-mutants
	$(BIN)/python tests/mutants.py --count 300

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist docs/_build docs/benchmarks.md
