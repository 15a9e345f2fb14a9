# The same targets run here, in .ci/run and in the workflow. PYTHON=python uses another interpreter.
PYTHON ?= .venv/bin/python
WORKERS ?= 2
CASES ?= 1500

.PHONY: setup check near pins lint format types test cluster differential docs pictures site kernel sanitized release frameworks adapters benchmarks

setup:  ## a virtual environment with everything that tests and checks need
	python3 -m venv .venv
	.venv/bin/pip install -c constraints.txt -e '.[dev,docs]'

check: lint types test benchmarks cluster differential kernel sanitized site release  ## all that a change must pass

NEAR = $(shell git diff --name-only $(SINCE) | $(PYTHON) -m tests.project.near)
SINCE ?= HEAD

near: lint types  ## what finds most faults in minutes: the tests near what differs from SINCE, and of all documents
	$(PYTHON) -m pytest -n $(WORKERS) tests/project/test_structure.py tests/project/test_docs.py tests/project/test_reference.py tests/project/test_examples.py tests/messages $(NEAR)

PYTHONS = 3.10.14 3.11.9 3.12 3.13 3.14

pins:  ## asks the package index whether constraints.txt fits every Python that is claimed; needs uv, and none of them
	mkdir -p build
	for python in $(PYTHONS); do \
		for extras in "--extra dev --extra docs --extra plot --extra ray" "--extra dev --extra frameworks"; do \
			uv pip compile --quiet --python-version $$python --constraint constraints.txt $$extras --no-header \
				--output-file build/pins-$$python.txt pyproject.toml || exit 1; \
		done; \
	done

lint:
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check

format:
	$(PYTHON) -m ruff check --fix
	$(PYTHON) -m ruff format

types:  ## of the package, and as a user's script sees them
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest -q -rs tests/project/test_user_types.py --user-types

test:  ## the whole suite, with the examples of all docstrings
	$(PYTHON) -m pytest -n $(WORKERS)

cluster:  ## the tests that start clusters of several nodes: Ray and torchrun
	$(PYTHON) -m pytest -m cluster tests/cluster

benchmarks:  ## each benchmark runs with small data, and its results are those of its tables and pictures
	$(PYTHON) -m pytest -n $(WORKERS) -m benchmarks tests/project

differential:  ## random cases give the batches, ids and states of an earlier commit; two minutes on two cores
	$(PYTHON) -m pytest tests/differential/test_differential.py --differential $(CASES)

docs:  ## what the README, the examples, docs/ and the docstrings show is executed
	$(PYTHON) -m pytest tests/project/test_examples.py tests/project/test_docs.py tensorstash

pictures:  ## those that the code of the pages draws, and the drawings
	$(PYTHON) docs/drawings.py
	$(PYTHON) -m tests.project.pages

site:  ## docs/_build/index.html and llms.txt, laid out in Chromium where there is one; needs no network
	$(PYTHON) -m sphinx -E -W --keep-going -q -b html docs docs/_build
	$(PYTHON) -m pytest -q -rs tests/project/test_site.py tests/project/test_search.py --site docs/_build

# the tests of gather, order and look-up; those of mixes and shards run on both ways in the suite
BOTH_WAYS = tests/native tests/gather tests/windows/test_windows.py tests/windows/test_masked.py \
	tests/windows/test_intervals.py tests/sampling/test_order.py tests/sampling/test_sampler.py tests/sampling/test_tree.py \
	tests/sampling/test_weighted.py tests/sampling/test_by_time.py tests/sampling/test_orders_of_loaders.py \
	tests/sampling/test_weights_of_loaders.py tests/batches/test_loader.py tests/batches/test_same_batches.py \
	tests/transforms/test_scaler*.py tests/transforms/test_scaling.py

kernel:  ## the kernel must be there if there is a compiler; without it the same tests pass on numpy and torch
	! command -v cc >/dev/null || $(PYTHON) -c 'import sys; from tensorstash.native import library; sys.exit(library.LIBRARY is None and library.why())'
	TENSORSTASH_NATIVE=0 $(PYTHON) -m pytest -n $(WORKERS) $(BOTH_WAYS)

sanitized:  ## the tests of the kernel, compiled under AddressSanitizer and UndefinedBehaviorSanitizer
	! command -v cc >/dev/null || tests/native/sanitized.sh $(PYTHON)

release:  ## a dry run: version, changelog, workflows, packages and their metadata, in a copy; nothing is uploaded
	tests/project/release.sh $(PYTHON)

frameworks:  ## installs the other packages beside ours, and runs the tests that hand batches to them
	$(PYTHON) -m pip install -c constraints.txt -e '.[dev,frameworks]'
	$(PYTHON) -m pytest tests/batches/test_frameworks.py tests/adapters

adapters:  ## the same with the forecasting packages; without the pins that GluonTS does not allow
	mkdir -p build && grep -vE '^(pandas|toolz)==' constraints.txt > build/adapters.txt
	$(PYTHON) -m pip install -c build/adapters.txt -e '.[dev,frameworks,adapters]'
	$(PYTHON) -m pytest tests/batches/test_frameworks.py tests/adapters
