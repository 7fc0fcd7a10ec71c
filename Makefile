# Every command makes what it needs, in a virtual environment of its own: on a fresh machine
# `make demo` or `make test` is all there is to type. PYTHON names the interpreter, 3.10 to 3.13.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet

# Handed on: make demo DEMO_ARGS="--epochs 2 --small", make quick ARGS="-k arena", ...
ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test test-debug quick check bench docs build debug package gpu format clean distclean

help:
	@echo "make demo     train on real digits with paddle, fed by this package"
	@echo "make test     everything: build, check, tests, package, small demo"
	@echo "make quick    tests alone, without the slow ones    (ARGS=... goes to pytest)"
	@echo "make check    ruff, mypy --strict, layers, words"
	@echo "make bench    speed beside PyTorch and Paddle       (BENCH_ARGS=...)"
	@echo "make docs     links and paths the documents name"
	@echo "make build    the compiled core, in place           (make debug: with checks)"
	@echo "make package  sdist and wheel, tried outside the checkout"
	@echo "make test-debug  the tests on the debug build"
	@echo "make gpu      tests that need a CUDA device"
	@echo "make format   let ruff rewrite the sources"
	@echo "make clean    remove what was built                 (make distclean: and $(VENV))"

# --- the environment: each stamp is newer than what it was installed from -----------------

$(PY):
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 10) <= v <= (3, 13) or sys.exit(\
	"lodreader needs Python 3.10 to 3.13, and $(PYTHON) is %d.%d: name another, make PYTHON=python3.11 ..." % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.has-build: requirements/build.txt requirements/constraints.txt | $(PY)
	$(PIP) -r requirements/build.txt
	@touch $@

$(VENV)/.has-demo: requirements/demo.txt $(VENV)/.has-build
	$(PIP) -r requirements/demo.txt
	@touch $@

$(VENV)/.has-test: requirements/test.txt $(VENV)/.has-demo
	$(PIP) -r requirements/test.txt
	@touch $@

# --- the core: setup.py rebuilds what changed, and all of it when the flags did -----------

build: $(VENV)/.has-build
	$(PY) setup.py --quiet build_ext --inplace

debug: $(VENV)/.has-build
	READER_DEBUG=1 $(PY) setup.py --quiet build_ext --inplace

# --- what people type ---------------------------------------------------------------------

demo: $(VENV)/.has-demo build
	$(PY) -m tools.demo $(DEMO_ARGS)

# The cheap and telling parts first.
test: $(VENV)/.has-test
	$(MAKE) build
	$(MAKE) check
	$(PY) -m pytest $(ARGS)
	$(MAKE) package
	$(MAKE) demo DEMO_ARGS="--epochs 2 --small"

quick: $(VENV)/.has-test build
	$(PY) -m pytest -m "not gpu and not slow" $(ARGS)

# The same tests on a core that checks every step; the release build is put back after.
test-debug: $(VENV)/.has-test debug
	$(PY) -m pytest $(ARGS)
	$(MAKE) build

gpu: $(VENV)/.has-test build
	$(PY) -m pytest -m gpu $(ARGS)

check: $(VENV)/.has-test docs
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m tools.check_layers
	$(PY) -m tools.check_words

# Beside an older version of its own: make bench BENCH_ARGS="--against WHEEL". The tables of the
# README and its chart: make bench BENCH_ARGS=--readme.
bench: $(VENV)/.has-test build
	$(PY) -m tools.bench $(BENCH_ARGS)

docs: $(VENV)/.has-build
	$(PY) -m tools.check_docs

package: $(VENV)/.has-test
	$(PY) -m tools.smoke

format: $(VENV)/.has-test
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find reader cython_ext tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
	find reader -name '*.so' -delete

distclean: clean
	rm -rf $(VENV)
