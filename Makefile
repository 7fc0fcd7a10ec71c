# Every command makes what it needs, in a virtual environment of its own: on a fresh machine
# `make demo` or `make test` is all there is to type. PYTHON names the interpreter, 3.10 to 3.13.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# What is imported is compiled then: most of what these packages hold never is.
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --no-compile

# Handed on: make demo DEMO_ARGS="--epochs 2 --small", make quick ARGS="-k arena", ...
ARGS ?=
DEMO_ARGS ?=
SMOKE_ARGS ?=
BENCH_ARGS ?=
# Each claim once; make nightly asks for it under every start method and number of workers, too: all.
VARIANTS ?= sampled

MAKEFLAGS += --no-print-directory
# What tests start imports the package hundreds of times: it is compiled once, whatever is set here.
export PYTHONDONTWRITEBYTECODE =
.DEFAULT_GOAL := help
.PHONY: help demo test tests tests-of-tools test-debug quick check bench docs site build debug package \
	wheels extras gpu gluon augmentation shard-libraries integrations cluster cluster-kills demo-cluster old-paddle \
	simdev evidence image-programs sanitize nightly matrix format clean distclean

help:
	@echo "make demo     train on real digits with paddle, fed by this package"
	@echo "make test     build, check, tests, those of tools, package, small demo: a quarter of an hour"
	@echo "make quick    tests alone, without the slow ones    (ARGS=... goes to pytest)"
	@echo "make evidence peers run again: their defects, and what was compared with their record"
	@echo "make image-programs  what make evidence makes image files with: ImageMagick, ffmpeg, ... (Debian, as root)"
	@echo "make nightly  all of it: test, debug build, sanitizers, evidence, peers apart, fuzzers, a soak"
	@echo "make matrix   the tests under every Python that can be found (VERSIONS=3.12)"
	@echo "make check    ruff, mypy --strict, layers, words"
	@echo "make bench    speed beside PyTorch and Paddle       (BENCH_ARGS=...)"
	@echo "make docs     links and paths the documents name"
	@echo "make site     the documentation site, in build/site: open build/site/index.html"
	@echo "make build    the compiled core, in place           (make debug: with checks)"
	@echo "make package  sdist and wheel, tried outside the checkout"
	@echo "make wheels   sdist and a wheel for each Python, each tried in empty environments (ARGS=3.12)"
	@echo "make extras   each extra's oldest and newest versions, in environments of their own (ARGS=\"oldest torch\")"
	@echo "make test-debug  the tests on the debug build (make sanitize: on gcc's sanitizers)"
	@echo "make gpu      tests and measurements on a CUDA device, by PYTHON's torch; writes build/gpu.json"
	@echo "make old-paddle  tests of static and dynamic feeding under Paddle 2.6"
	@echo "make gluon    tests and speed beside MXNet 1.9.1, in an environment of its own"
	@echo "make augmentation  tests beside Albumentations and OpenCV, in an environment of its own"
	@echo "make shard-libraries  shards that WebDataset, Streaming, LitData, TFRecord, ArrayRecord wrote"
	@echo "make cluster  tests of workers on Ray, in an environment of its own"
	@echo "make demo-cluster  the digits again, with workers on a cluster of Ray of which a node is killed"
	@echo "make integrations  tests beside Lightning, transformers, TRL and VisualDL, in an environment of its own"
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

$(VENV)/.has-test: requirements/test.txt requirements/apart.txt requirements/stores.txt $(VENV)/.has-demo
	$(PIP) -r requirements/test.txt
	$(PIP) --upgrade --no-deps --target $(VENV)/stores -r requirements/stores.txt
	$(PIP) --upgrade --target $(VENV)/apart -r requirements/apart.txt
	@touch $@

# --- the core: setup.py rebuilds what changed, and all of it when the flags did -----------

build: $(VENV)/.has-build
	$(PY) setup.py --quiet build_ext --inplace

debug: $(VENV)/.has-build
	READER_DEBUG=1 $(PY) setup.py --quiet build_ext --inplace

# --- what people type ---------------------------------------------------------------------

demo: $(VENV)/.has-demo build
	$(PY) -m tools.demo $(DEMO_ARGS)

# The cheap and telling parts first, side by side: each is for long on one core.
test: | $(PY)
	$(MAKE) --jobs=2 --output-sync=target $(VENV)/.has-test build
	$(MAKE) --jobs=3 --output-sync=target simdev check package demo SMOKE_ARGS=--as-built \
		DEMO_ARGS="--epochs 2 --small"
	$(MAKE) tests APART=

# Six at a time, since they wait much, and then one by one those that count what the machine does,
# or time it. A peer is not run: what it gave is recorded (tests/peers/record.py).
JOBS ?= 6
PARALLEL := -n $(JOBS) --variants $(VARIANTS)
# Workers are forked from processes that have torch and paddle in them: with huge pages a fork copies
# a third of the page tables.
QUICK_FORKS := GLIBC_TUNABLES=glibc.malloc.hugetlb=1
OURS := not gpu and not evidence$(if $(filter sampled,$(VARIANTS)), and not nightly)
OF_TOOLS := $(wildcard tests/tools tests/unit/test_bench*.py)
# pytest says 5 where nothing was left to run: ARGS="-k arena" names no test of each kind.
NONE_IS_FINE := $(if $(ARGS),|| test $$$$? -eq 5)
APART := $(foreach path,$(OF_TOOLS),--ignore=$(path))
ALONE = $(shell grep -rl "pytest\.mark\.alone" tests --include="test_*.py")

# The simulated accelerator for torch takes half a minute to compile: not within a test's time.
simdev: $(VENV)/.has-test
	$(PY) -m tests.device.build

# Files that import a framework run after the others: all that is imported makes each fork dearer.
tests: $(VENV)/.has-test
	$(QUICK_FORKS) $(PY) -m pytest $(PARALLEL) $(APART) --importing none -m "$(OURS) and not alone" $(ARGS) $(NONE_IS_FINE)
	$(QUICK_FORKS) $(PY) -m pytest $(PARALLEL) $(APART) --importing frameworks -m "$(OURS) and not alone" $(ARGS) $(NONE_IS_FINE)
	$(PY) -m pytest $(ALONE) --variants $(VARIANTS) -m "$(OURS) and alone" $(ARGS) $(NONE_IS_FINE)

tests-of-tools: $(VENV)/.has-test
	$(PY) -m pytest $(PARALLEL) $(OF_TOOLS) $(ARGS) $(NONE_IS_FINE)

quick: $(VENV)/.has-test build
	$(PY) -m pytest $(PARALLEL) $(APART) -m "$(OURS) and not alone and not slow" $(ARGS)

# Each peer runs again, is seen to have its defects, and gives what its record says. After a new
# release of a peer: make evidence ARGS="--peers record".
evidence: $(VENV)/.has-test build
	$(PY) -m pytest $(PARALLEL) --variants all tests/peers tests/device tests/tools tests/unit/test_bench.py --peers run -m "(evidence or paired) and not gpu" $(ARGS)
	$(MAKE) integrations ARGS=
	$(MAKE) cluster ARGS=
	$(MAKE) cluster-kills

# Without them make evidence says which kinds of image files it leaves out.
image-programs: | $(PY)
	apt-get install --yes --no-install-recommends \
		$$($(PY) -c "from tools.foreign_images.kinds import PACKAGES; print(*sorted(PACKAGES.values()))")

# The same tests on a core that checks every step; the release build is put back after.
test-debug: $(VENV)/.has-test debug
	$(MAKE) tests VARIANTS=all; code=$$?; $(MAKE) build && exit $$code

# In a copy of the checkout each, on a core that gcc watches.
SANITIZERS ?= address undefined thread
sanitize: $(VENV)/.has-test
	@for kind in $(SANITIZERS); do $(PY) -m tools.sanitize $$kind $(ARGS) || exit; done

nightly:
	$(MAKE) test VARIANTS=all
	$(MAKE) test-debug
	$(MAKE) sanitize
	$(MAKE) evidence
	$(MAKE) old-paddle
	$(MAKE) gluon
	$(MAKE) augmentation
	$(MAKE) shard-libraries
	$(PY) -m pytest -n 2 --timeout 0 -o faulthandler_timeout=7200 --hypothesis-profile nightly tests/fuzz
	$(PY) -W ignore -m tools.fuzz_pixels --count 200000
	$(PY) -m tools.interrupts --count 100000
	$(PY) -m tools.interrupts --storm 20
	$(PY) -m tools.soak --minutes 10

matrix: $(VENV)/.has-build
	$(PY) -m tools.matrix $(VERSIONS) $(ARGS)

# Paddle 2.6 on the CPU, in an environment of its own: PADDLE_26=paddlepaddle-gpu==2.6.2 for that build.
PADDLE_26 ?= paddlepaddle==2.6.2
OF_PADDLE_26 := test_static_feed test_generator_loader test_feeding_loader test_samples
# what 2.6 has not: PIR, and two types; and its build for GPUs refuses places in other words
NOT_OF_PADDLE_26 := not pir_mode and not e8m0fnu and not e4m3fn-float32 and not sources_are_checked
old-paddle: build
	$(PYTHON) -m venv $(VENV)-paddle-2.6
	$(VENV)-paddle-2.6/bin/python -m pip --disable-pip-version-check install --quiet \
		-r requirements/paddle-2.6.txt $(PADDLE_26)
	READER_TEST_WITHOUT=torch $(VENV)-paddle-2.6/bin/python -m pytest -n 2 -o filterwarnings=ignore -k "$(NOT_OF_PADDLE_26)" \
		$(OF_PADDLE_26:%=tests/contract/%.py) $(ARGS)

# MXNet 1.9.1, in an environment of its own with NumPy 1.23: under Python 3.10 or 3.11, which is that of
# the core.
OF_GLUON := tests/peers/test_gluon_mxnet.py tests/unit/test_gluon_batchify.py \
	$(patsubst %,tests/contract/test_%.py,gluon_loader shards dataset_loader)
gluon: build
	$(PYTHON) -m venv $(VENV)-mxnet-1.9
	$(VENV)-mxnet-1.9/bin/python -m pip --disable-pip-version-check install --quiet \
		-r requirements/mxnet-1.9.txt
	$(VENV)-mxnet-1.9/bin/python -m pytest -n 2 -o filterwarnings=ignore $(OF_GLUON) $(ARGS)
	$(VENV)-mxnet-1.9/bin/python -W ignore -m tools.gluon_bench

# Albumentations and OpenCV, which need another NumPy: that their pictures repeat and resume.
OF_AUGMENTATION := tests/contract/test_reseed.py tests/peers/test_torch_albumentations.py
augmentation: build
	$(PYTHON) -m venv $(VENV)-augmentation
	$(VENV)-augmentation/bin/python -m pip --disable-pip-version-check install --quiet \
		-r requirements/augmentation.txt
	$(VENV)-augmentation/bin/python -m pytest -n 2 -o filterwarnings=ignore --peers run $(OF_AUGMENTATION) $(ARGS)

# The libraries whose shards reader.Shards reads, beside what `make test` takes.
OF_SHARD_LIBRARIES := tests/peers/test_shard_libraries.py tests/peers/test_megatron.py tests/contract/test_tokens_command.py
shard-libraries: $(VENV)/.has-test build
	$(PIP) --upgrade --no-deps --target $(VENV)/shard-libraries -r requirements/shard-libraries.txt
	PYTHONPATH=$(VENV)/shard-libraries $(PY) -m pytest -o filterwarnings=ignore $(OF_SHARD_LIBRARIES) $(ARGS)
	PYTHONPATH=$(VENV)/shard-libraries $(PY) -m pytest -o filterwarnings=ignore tests/integrations/test_language_models.py -k megatron

# Libraries that train by our loaders, or show what they do, and are too large for `make test`.
# Workers on a cluster of Ray: three nodes on this machine.
IN_CLUSTER := $(VENV)-cluster/bin/python
$(VENV)-cluster/.has-ray: requirements/ray.txt requirements/stores.txt
	$(PYTHON) -m venv $(VENV)-cluster
	$(IN_CLUSTER) -m pip --disable-pip-version-check install --quiet -r requirements/ray.txt
	$(IN_CLUSTER) -m pip --disable-pip-version-check install --quiet --upgrade --no-deps \
		--target $(VENV)-cluster/stores -r requirements/stores.txt
	@touch $@

cluster: build $(VENV)-cluster/.has-ray
	$(IN_CLUSTER) -m pytest tests/cluster $(ARGS)

cluster-kills: build $(VENV)-cluster/.has-ray
	$(IN_CLUSTER) -m tools.cluster_kills --nodes 20 --actors 50

demo-cluster: build $(VENV)-cluster/.has-ray
	$(IN_CLUSTER) -m tools.demo.cluster $(DEMO_ARGS)

# torchvision lies apart: beside torch for CPUs its import fails, and others try it where it is found.
OF_INTEGRATIONS := $(patsubst %,tests/integrations/test_%.py,language_models lightning page streams transformers visualdl)
integrations: build
	$(PYTHON) -m venv $(VENV)-integrations
	$(VENV)-integrations/bin/python -m pip --disable-pip-version-check install --quiet \
		-r requirements/integrations.txt
	$(VENV)-integrations/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
		--upgrade --target $(VENV)-integrations/apart torchvision==0.28.0
	$(VENV)-integrations/bin/python -m pytest -n 2 -o filterwarnings=ignore $(OF_INTEGRATIONS) \
		tests/unit/test_compatibility.py::test_every_recorded_name_has_its_recorded_signature $(ARGS)

# With what PYTHON has: a torch that finds the device, numpy, pytest, and what building takes.
gpu:
	$(PYTHON) setup.py --quiet build_ext --inplace
	$(PYTHON) -m tools.gpu $(ARGS)

check: $(VENV)/.has-test docs
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m tools.check_layers
	$(PY) -m tools.check_words

# Beside an older version of its own: make bench BENCH_ARGS="--against WHEEL". The tables of
# README.md and docs/speed.md, and the chart: make bench BENCH_ARGS=--readme.
bench: $(VENV)/.has-test build
	$(PY) -m tools.bench $(BENCH_ARGS)

docs: $(VENV)/.has-build
	$(PY) -m tools.check_docs

# In an environment of its own. A broken link, a page that is in no menu, a public name without a
# page, or anything that the site would fetch from elsewhere ends it with an error.
$(VENV)-site/.has-site: requirements/site.txt
	$(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/site.txt
	@touch $@

site: build $(VENV)-site/.has-site
	NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/python -m mkdocs build --strict \
		--config-file tools/site/mkdocs.yml $(ARGS)
	@echo "build/site/index.html"

package: $(VENV)/.has-test
	$(PY) -m tools.smoke $(SMOKE_ARGS)

$(VENV)/.has-wheels: requirements/wheels.txt $(VENV)/.has-build
	$(PIP) -r requirements/wheels.txt
	@touch $@

wheels: $(VENV)/.has-wheels
	$(PY) -m tools.wheels $(ARGS)

# Gigabytes for torch; ARGS="oldest jax --keep" chooses. The table of docs/compatibility.md.
extras: $(VENV)/.has-build build
	$(PY) -m tools.extras $(ARGS)

format: $(VENV)/.has-test
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find reader cython_ext tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
	find reader -name '*.so' -delete

distclean: clean
	rm -rf $(VENV)
