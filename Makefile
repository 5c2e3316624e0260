# make demo    set up, then watch three models learn to track a state
# make test    set up, then run the tests
# make check   set up, then lint, format check and types
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow check format readme clean

demo: $(VENV)/.run
	OMP_NUM_THREADS=1 $(BIN)/feedback-transformer demo $(ARGS)

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

readme: $(VENV)/.run
	$(BIN)/python -m feedback_transformer.report.readme

clean:
	rm -rf $(VENV) demo runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# torch first and by itself: the constraint picks one build, and what comes after is satisfied by it.
$(VENV)/.run: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once, a minute or two) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed; choose one with: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PIP) torch
	$(PIP) -e ".[tensorboard,translation]"
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) -e ".[dev]"
	@touch $@
