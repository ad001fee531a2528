# `make demo` and `make test` set everything up from a bare Python 3.11+; `make help` says what else there is.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin

.PHONY: help demo test test-all lint page vscode coverage docs wheel slow clean
.DELETE_ON_ERROR:

help:  ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: $(VENV)/.installed  ## set everything up, make a small run of a decode step and explain it
	$(BIN)/npuscope demo

test: lint  ## set everything up, then lint, types and the tests
	$(BIN)/python -m pytest

test-all: lint  ## the same, with full-size models, doc sessions, Ray, the wheel and many more examples
	NPUSCOPE_ALL_TESTS=1 $(BIN)/python -m pytest

lint: $(VENV)/.installed-dev  ## lint and types; of the page's modules and the extension, too, where there is npm
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONHASHSEED=0 $(BIN)/mypy  # mypy 2.4 infers some types by the hash seed: the same answer for everyone
	@if command -v npm >/dev/null; then $(MAKE) -s page vscode; else echo "npm is not here: neither the page's modules nor the extension are checked"; fi

page: node_modules/.installed  ## types and format of the page's modules
	npm run --silent check

vscode: editors/vscode/node_modules/.installed $(VENV)/.installed-dev  ## build the extension of VS Code, editors/vscode/npuscope.vsix, and try it
	npm --prefix editors/vscode run --silent check
	NPUSCOPE=$(abspath $(BIN))/npuscope npm --prefix editors/vscode run --silent test
	npm --prefix editors/vscode run --silent package

coverage: $(VENV)/.installed-dev  ## all tests, and which lines they run; fails below the floor of pyproject.toml
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

docs: $(VENV)/.installed-docs  ## build the site into docs/_build/html, with every warning an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

wheel: $(VENV)/.installed-dev  ## build the wheel and the source archive into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

slow: $(VENV)/.installed-dev  ## measure which test files are slow, into tests/slow.tsv
	$(BIN)/python -m pytest -p cpu_seconds --cpu-seconds tests/slow.tsv

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lab,fix]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@ $(VENV)/.installed

editors/vscode/node_modules/.installed: editors/vscode/package.json
	npm --prefix editors/vscode install --silent --no-audit --no-fund --no-package-lock
	touch $@

node_modules/.installed: package.json
	npm install --silent --no-audit --no-fund --no-package-lock
	touch $@

clean:  ## take away what was made here
	rm -rf $(VENV) build dist docs/_build *.egg-info
