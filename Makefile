# make figures | make test | make test-slow | make check | make bench: each creates .venv if needed. Example with
# options: make figures size=small experiment=rate.
PYTHON ?= python3
size ?= published

VENV := .venv
BIN := $(VENV)/bin
# An installation is named by what it was made from: a stamp with a stale name reinstalls.
STAMP := $(VENV)/.installed

.PHONY: figures test test-slow check bench venv lock clean
.DEFAULT_GOAL := figures

figures: $(STAMP)
	@$(BIN)/jaxattn figures size=$(size) $(if $(experiment),experiment=$(experiment))

# Most of the tests' time is compilation. Little XLA optimization halves it. The tests marked `compiled`, whose last
# digits depend on the compiler, run again with the slow ones at full optimization.
LITTLE := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
PYTEST := -m pytest -n auto --maxprocesses 4 --dist loadfile

test: $(STAMP)
	@XLA_FLAGS="$(LITTLE)" $(BIN)/python $(PYTEST) -m "not slow"

test-slow: $(STAMP)
	@XLA_FLAGS="$(LITTLE)" $(BIN)/python $(PYTEST) -m "slow and not compiled"
	@$(BIN)/python $(PYTEST) -m compiled

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright

bench: $(STAMP)
	@$(BIN)/python scripts/bench.py

venv: $(STAMP)

$(STAMP): pyproject.toml $(wildcard requirements/*.txt)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh requirements/install.sh
	@touch $@

# Renews the lock files; needs uv and the three Python minors on the PATH.
lock:
	@for minor in 3.11 3.12 3.13; do \
	  uv pip compile pyproject.toml --extra study --extra test --python-version $$minor --upgrade \
	    --generate-hashes --no-emit-index-url --no-header --no-annotate -q \
	    -o requirements/py$$(echo $$minor | tr -d .).txt || exit 1; \
	done

clean:
	rm -rf $(VENV) runs .pytest_cache .ruff_cache .hypothesis
