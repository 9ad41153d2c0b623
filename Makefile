# Everything is set up by the targets themselves, in .venv: for the demo what a training machine needs, for all else what the tests need.
# What is not from PyPI, .ci/system-packages installs from Debian.
PYTHON ?= python3
export PYTHON
VENV := .venv
BIN := $(VENV)/bin
DEMO_READY := $(VENV)/.demo-ready
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
NATIVE := $(VENV)/.native
RUNS ?= 30
OUT ?= build/lab
NODES ?= 1250
TIMES ?= 3
LOCKER := $(shell sed -n 's/^\(uv==[^ ]*\).*/\1/p' requirements.lock)
SBOM_MAKER := cyclonedx-bom==7.5.0

# Hundreds of processes of the tests import the same modules: what is compiled once serves them all.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help system-packages demo test side-by-side alone-computing alone-waiting matrix steady lowest bars bench fleet lab lint generate boards pages site lock sbom clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

system-packages:
	@.ci/system-packages test

demo: $(DEMO_READY) $(NATIVE) ## train a small model with a real fault, watched, and say where the time went (FAULT=none, comm_exposed, ...)
	$(BIN)/tachoscope demo $(if $(FAULT),--fault $(FAULT))

test: system-packages $(READY) $(NATIVE) ## every behaviour once
	@$(MAKE) --no-print-directory -j2 lint side-by-side
	@$(MAKE) --no-print-directory -j2 alone-computing alone-waiting

side-by-side: $(COMPILED)
	$(BIN)/python -m pytest -m "not alone" -n 4 --dist worksteal

alone-computing:
	$(BIN)/python -m pytest -m "alone and not waits" $(shell grep -rl mark.alone tests --include=*.py)

alone-waiting:
	$(BIN)/python -m pytest -m "alone and waits" $(shell grep -rl mark.waits tests --include=*.py)

# The modules that test processes import, a quarter of all that is installed, are compiled once here, on both cores.
IMPORTED_BY_TESTS := import accelerate, aiohttp, distributed, lightning.pytorch, litserve, moto.server, streamlit.testing.v1, streamlit.web.cli, \
	torch._dynamo, torch._inductor.compile_fx, torch.distributed.fsdp, torch.distributed.run, transformers.trainer, uvicorn, wandb
$(COMPILED): $(READY)
	@$(BIN)/python -c "$(IMPORTED_BY_TESTS)" & \
	$(BIN)/python -m pytest --collect-only >/dev/null; wait  # what is wrong, the tests say
	@touch $@

matrix: ## the same with each of PYTHONS="3.11 3.12 3.13 3.14" that is on this machine; the others are named
	@.ci/matrix

steady: ## the same TIMES=3 times, beside a process that keeps a core busy
	@.ci/steady $(TIMES)

lowest: system-packages ## the tests side by side with the lowest versions of packages that pyproject.toml allows
	@LOCKER=$(LOCKER) .ci/lowest

bars: system-packages $(READY) $(NATIVE) ## the full counts: every fault 10 times, and all other tests (over an hour)
	$(BIN)/python -m pytest --bar-runs 10

bench: system-packages $(READY) $(NATIVE) ## measure what probes, agent, GPUs, checkpoints and rules cost and how fast traces are read, and write docs/develop/measurements.md
	$(BIN)/python benchmarks/probe_overhead.py --write
	$(BIN)/python -m benchmarks.serving.overhead --write
	$(BIN)/python benchmarks/agent_overhead.py --write
	$(BIN)/python benchmarks/gpu_overhead.py --write
	$(BIN)/python benchmarks/checkpoint_verification.py --write
	$(BIN)/python -m benchmarks.traces.trace_reading --write
	$(BIN)/python benchmarks/change_points.py --write
	$(BIN)/python -m benchmarks.pipeline_operations.speed --write
	$(BIN)/python -m benchmarks.alert_times.detection --write
	$(BIN)/python -m benchmarks.slo_rules --write
	$(BIN)/python -m benchmarks.board_queries --write
	$(BIN)/python -m benchmarks.explorer_pages.pages --write
	$(BIN)/python -m benchmarks.explorer_pages.long_job --write
	$(BIN)/python benchmarks/watch.py --write
	$(BIN)/python -m benchmarks.long_jobs --write
	$(BIN)/python benchmarks/profile_idle.py --write
	$(BIN)/python benchmarks/profile_starts.py --write
	$(BIN)/python benchmarks/install_matrix.py --write

fleet: $(READY) ## compare what 1,250 nodes cost Prometheus and VictoriaMetrics with benchmarks/fleet/budgets.yaml (NODES=1250; half an hour)
	@.ci/system-packages fleet
	$(BIN)/python -m benchmarks.fleet --nodes 3 --minutes 6 --scrape-seconds 1  # bytes of a sample
	$(BIN)/python -m benchmarks.fleet --nodes 50 --minutes 5 --scrape-seconds 15  # the same answers by VictoriaMetrics
	$(BIN)/python -m benchmarks.fleet.day  # a value of each objective at each evaluation of a day
	$(BIN)/python -m benchmarks.fleet --nodes $(NODES)  # rules and panels

lab: system-packages $(READY) ## cause every bottleneck for real, RUNS=30 times at each severity, in two sets, and write docs/develop/accuracy.md (days; it goes on where it was interrupted)
	$(BIN)/python -m benchmarks.lab --set development --runs-per-class $(RUNS) --out $(OUT)
	test -e $(OUT)/frozen.json || $(BIN)/python -m benchmarks.lab.calibrate $(OUT)
	$(BIN)/python -m benchmarks.lab --set test --runs-per-class $(RUNS) --out $(OUT)
	$(BIN)/python -m benchmarks.lab.accuracy $(OUT)

lint: $(READY) ## ruff, mypy --strict, import layers, sizes of folders, and whether generated files are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate.py --check
	$(BIN)/python tools/check_layout.py

generate: $(READY) ## write the files that are made from the code, and the rules made from objectives
	$(BIN)/python tools/generate.py

boards: system-packages $(READY) ## draw the pictures of the Grafana boards in the docs, from a recorded demo
	$(BIN)/python tests/dashboards/board_pictures.py

pages: system-packages $(READY) ## draw the pictures of the explorer in the docs, from recorded demos
	PYTHONPATH=tests/explorer $(BIN)/python tests/explorer/explorer_pictures.py

site: ## build the documentation as a site with search, in build/site/html, by mkdocs-material in an environment of its own
	test -x build/site/env/bin/mkdocs || ($(PYTHON) -m venv build/site/env && build/site/env/bin/pip install --quiet 'mkdocs-material>=9.6,<10')
	NO_MKDOCS_2_WARNING=1 build/site/env/bin/python tools/docs_site.py

COMPILE = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-package torch

lock: ## resolve the newest versions again and write requirements.lock with the hashes of their files (KEEP=1: change only what must), and of it what the demo needs
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check $(LOCKER)
	$(if $(KEEP),cp requirements.lock build/lock/all)
	$(COMPILE) --all-extras --group dev --constraint requirements-torch.lock --output-file build/lock/all pyproject.toml
	( echo "# Written by make lock: the exact versions that make installs, and the SHA-256 of their files. PyTorch is in requirements-torch.lock."; \
	  awk '/^[^ ]/ { cuda = /^(cuda-|nvidia-|triton==)/ && !/^nvidia-ml-py==/ } !cuda' build/lock/all ) > requirements.lock
	$(COMPILE) --extra analyze --extra agent --group build --constraint requirements.lock --output-file build/lock/demo pyproject.toml requirements-torch.lock
	( echo "# Written by make lock: the part of requirements.lock that make demo installs."; \
	  awk -F== 'NR == FNR { wanted[$$1]; next } /^[^ ]/ { keep = $$1 in wanted } keep' build/lock/demo requirements.lock ) > requirements-demo.lock

sbom: $(READY) ## write build/sbom.cdx.json: what is installed in .venv, with licences and what needs what, in CycloneDX's form
	rm -rf build/sbom && $(PYTHON) -m venv build/sbom
	build/sbom/bin/pip install --quiet --disable-pip-version-check $(SBOM_MAKER)
	build/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file build/sbom.cdx.json $(BIN)/python
	@echo "written: $(CURDIR)/build/sbom.cdx.json"

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# Locks are whole: nothing else is resolved (--no-deps), nothing without a hash is installed, and the project is built by what they hold.
# torch comes after what it needs, so that only what PyPI's build needs beyond the CPU's is taken without a hash, and by pip: as its index is set.
# Nothing is compiled at installation: Python compiles what is imported, and most modules never are.
PIP_INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
$(DEMO_READY): requirements-demo.lock requirements-torch.lock pyproject.toml
	@.ci/system-packages demo
	$(PYTHON) -m venv $(VENV)
	.ci/install-locked $(BIN) requirements-demo.lock
	$(PIP_INSTALL) -r requirements-torch.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@ $(NATIVE)

# The installation compiles the native modules in place; here it is done again when their sources changed. Without a compiler Python does the work.
$(NATIVE): $(DEMO_READY) hatch_build.py $(shell find agents analyzers -name '*.[ch]')
	$(BIN)/python hatch_build.py
	@touch $@

$(READY): $(DEMO_READY) requirements.lock
	.ci/install-locked $(BIN) requirements.lock
	@touch $@
