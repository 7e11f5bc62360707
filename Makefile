# make sweep      set up .venv with what runs need, where that is missing, then run the first sweep, a part of it over an
#                 emulated network; if the kernel allows no emulation, a line says so and that part is left out
# make test       set up .venv with what tests need, too, then lint, check types and run what a change can break by itself (minutes)
# make test-all   likewise, with the tests marked `thorough`: whole sweeps, killed processes, a real SLURM, every printed command
# make site       the documentation as a site, in build/site
# make gpu        on a machine with a GPU: measure everything that depends on it, in ten minutes, with the packages that this
#                 machine's python3 has (docs/guide/gpus.md); results in build/gpu and docs/reference/gpu.md
#
# PYTHON=python3.12          the Python to make .venv with (3.10 to 3.13)
# PIP_ARGS="..."             more arguments for pip, such as the index of PyTorch's CPU builds
# ARGS="epochs=5 seed=1,2"   more overrides for the sweep; more options of benchmarks/gpu.py
# PROCESSES=1                how many tests run at once; where cores are few, one more than these: many tests mostly wait

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
ARGS ?=
PYTEST = $(VENV)/bin/python -m pytest -n $(PROCESSES) --dist worksteal --durations 15
CORES = len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0))
PROCESSES ?= $(shell $(PYTHON) -c 'import os; n = $(CORES); print(min(8, max(n, min(n + 1, 5))))')

.PHONY: install sweep test test-all lint format site gpu clean

sweep: $(VENV)/installed-to-run
	$(VENV)/bin/python multirun.py -m compressor=qsgd,svd,none workers=2,4,8 network=none,ethernet_100m \
	    'sweep.exclude=["network == ethernet_100m and workers > 2"]' sweep.invalid=skip sweep.pack=true race.seconds=2 $(ARGS)

test: lint
	$(PYTEST) -m "not thorough and not fresh"

test-all: lint
	$(PYTEST) -m "not fresh"

site: install
	$(VENV)/bin/mkdocs build

gpu:
	$(PYTHON) benchmarks/gpu.py $(ARGS)

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: install
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

install: $(VENV)/installed

$(VENV)/installed-to-run: EXTRAS =
$(VENV)/installed: EXTRAS = [dev]
$(VENV)/installed-to-run $(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "PYTHON=$(PYTHON): valid is a Python from 3.10 to 3.13" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "PYTHON=$(PYTHON): has no venv; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.$(EXTRAS)'
	touch $(VENV)/installed-to-run $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
