# Three commands set everything up from a bare Python 3.11+: `make demo`, `make test`, and `make check` while one works.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin

.PHONY: demo test check slow clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/npuscope demo

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONHASHSEED=0 $(BIN)/mypy  # mypy 2.4 infers some types by the hash seed: the same answer for everyone
	$(BIN)/python -m pytest

# lint, types and the fast tests, in under a minute once mypy has its cache; tests/slow.tsv has the files left out
check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONHASHSEED=0 $(BIN)/mypy
	$(BIN)/python -m pytest --fast

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 0 -p cpu_seconds --cpu-seconds tests/slow.tsv

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[view]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build *.egg-info
