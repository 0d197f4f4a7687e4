# Each target creates .venv if needed; what it does stands behind ##, where the page of commands reads it. Examples with
# options: make figures all=yes size=small; make figures experiment=rate; make test-slow part=1/3.
PYTHON ?= python3
size ?= published

VENV := .venv
BIN := $(VENV)/bin
# An installation is named by what it was made from: a stamp with a stale name reinstalls.
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
BROWSER_STAMP := $(VENV)/.installed-browser

.PHONY: figures test test-slow check bench docs docs-test venv lock clean
.DEFAULT_GOAL := figures

figures: $(STAMP)  ## installs, trains, solves, draws; `all=yes` for all experiments, `experiment=rate` for one, `size=small` for a first look
	@$(BIN)/jaxattn figures size=$(size) $(if $(all),--all) $(if $(experiment),experiment=$(experiment))

# Most of the tests' time is compilation. Little XLA optimization halves it. The tests marked `compiled`, whose last
# digits depend on the compiler, run again with the slow ones at full optimization.
LITTLE = XLA_FLAGS="$$($(BIN)/python -c 'from jaxattn.parallel import effort; print(effort.BRIEF.flags())') $$XLA_FLAGS"
PYTEST := -m pytest -n auto --maxprocesses 4 --dist loadfile

test: $(STAMP)  ## the fast tests, compiled with reduced XLA optimization
	@$(LITTLE) $(BIN)/python $(PYTEST) -m "not slow and not browser and not examples"

test-slow: $(STAMP)  ## the slow tests, and those of training and solvers at full optimization; `part=1/3` for a third of them
	@$(LITTLE) $(BIN)/python $(PYTEST) -m "slow and not compiled" $(if $(part),--part $(part))
	@$(BIN)/python $(PYTEST) -m compiled $(if $(part),--part $(part))

check: $(STAMP)  ## linter, formatter, type checker and the layers of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-cache --no-logo

bench: $(STAMP)  ## measures what the pages quote, into `figures/bench.json`
	@$(BIN)/python scripts/bench.py

# A warning is an error: a link that leads nowhere, a public name without a page, a notebook that raises. Then the code
# of pages and docstrings runs.
docs: $(DOCS_STAMP)  ## builds this site into `site/`, and runs the code of pages and docstrings
	@$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs site
	@$(BIN)/python docs/_ext/links.py site
	@$(LITTLE) $(BIN)/python $(PYTEST) -m "examples and not slow"
	@echo "jaxattn: the site is site/index.html"

# Opens the site in an installed Chromium, without a network.
docs-test: docs $(BROWSER_STAMP)  ## the same, then opens the site in an installed Chromium
	@$(BIN)/python -m pytest -m browser tests/docs

venv: $(STAMP)  ## installs only

$(STAMP): pyproject.toml $(wildcard requirements/py3*.txt)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh requirements/install.sh
	@touch $@

# What `make docs` needs on top, in the same .venv.
$(DOCS_STAMP): $(STAMP) $(wildcard requirements/docs-*.txt)
	@VENV="$(VENV)" sh requirements/add.sh docs
	@touch $@

$(BROWSER_STAMP): $(DOCS_STAMP) $(wildcard requirements/browser-*.txt)
	@VENV="$(VENV)" sh requirements/add.sh browser
	@touch $@

# Renews the lock files; needs uv and the three Python minors on the PATH. Those of the site and of its tests hold only
# what the others do not, at versions that fit to them.
COMPILE = uv pip compile pyproject.toml --extra study --extra test --upgrade --generate-hashes --no-emit-index-url \
	--no-header --no-annotate -q
lock:  ## renews the locked versions in `requirements/`; needs uv and the three Pythons
	@for minor in 3.11 3.12 3.13; do \
	  name=py$$(echo $$minor | tr -d .).txt; \
	  $(COMPILE) --python-version $$minor -o requirements/$$name || exit 1; \
	  $(COMPILE) --python-version $$minor --extra docs -c requirements/$$name \
	    $$(sed -n 's/==.*//p' requirements/$$name | sed 's/^/--no-emit-package /') -o requirements/docs-$$name || exit 1; \
	  $(COMPILE) --python-version $$minor --extra docs --extra browser -c requirements/$$name -c requirements/docs-$$name \
	    $$(sed -n 's/==.*//p' requirements/$$name requirements/docs-$$name | sed 's/^/--no-emit-package /') \
	    -o requirements/browser-$$name || exit 1; \
	done

clean:  ## removes the installation, `runs` and `site`; figures stay
	rm -rf $(VENV) runs site jupyter_execute .pytest_cache .ruff_cache .hypothesis
