# Two commands do everything on a machine with Python >= 3.11, make and git: `make demo` and `make test`.
# `make test-all` runs the slow tests too, and those of vendors' compilers that `make compilers` has installed.
PYTHON ?= python3
UV := .uv/bin/uv
RUN := .venv/bin
# 9 GB in the user's cache, each in an environment of its own; `make compilers COMPILERS="qnn rknn"` is less
COMPILERS ?= --all
# tests without a marker, and a share of the examples of each property; pyproject.toml says what the markers are for
SHARE := --hypothesis-profile quick
MOST ?= not (chaos or long)
QUICK := -m "not (browser or chaos or compiler or long or postgresql)" $(SHARE)
# Much of a test's time is spent waiting for processes: four at a time keep two cores busy. Tests that share a server
# stand beside each other, and each worker begins with a quarter of them.
PARALLEL := -n 4 --dist worksteal

MODELS ?= models
# the oldest Python that is supported, and the newest
PYTHONS ?= 3.11 3.14

# tests start hundreds of programs: without bytecode each would compile this project anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all every-test most-tests slowest fuzz check setup compilers topology chaos bench rates remedies field bench-service bench-fleet bench-page bench-precision screenshots audit clean wheel
# The decoder does not compile, which is exit status 1 and what the demo shows.
demo: setup
	$(RUN)/onnx-bisect run examples/sam_decoder.onnx --backend whitelist --option profile=edgesam --out out || { test $$? -eq 1 && test -f out/report.html; }

test: setup check
	$(RUN)/pytest $(PARALLEL) $(QUICK)

test-all: check every-test

# for every commit that is merged (`.ci/run`): with vendors' compilers, PostgreSQL and a browser, without what takes long
most-tests: setup
	$(RUN)/pytest $(PARALLEL) -rsfE --tb=short --durations=20 -m "$(MOST)" $(SHARE)

# at the end the 20 tests that take longest, why tests are skipped, and which failed
every-test: setup
	$(RUN)/pytest $(PARALLEL) -rsfE --tb=short --durations=20

# the 20 tests that take the most of `make test`, which should end in five minutes
slowest: setup
	$(RUN)/pytest $(PARALLEL) --durations=20 $(QUICK)

# 20,000 hostile models, by field, bit and structure; what goes wrong is kept in fuzz-findings
fuzz: setup
	PYTHONPATH=tests $(RUN)/python -m support.fuzz.fuzzing 20000

check: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/lint-imports
	$(RUN)/mypy

setup: .venv/.synced

# uv lives in an environment of its own, so that syncing the project's cannot remove it.
$(UV):
	$(PYTHON) -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.8

.venv/.synced: $(UV) pyproject.toml uv.lock
	$(UV) sync --locked --quiet --extra service --compile-bytecode --python $(PYTHON)
	touch $@

compilers: setup
	$(RUN)/onnx-bisect backends install $(COMPILERS)

bench: setup
	$(UV) sync --locked --quiet --extra service --group bench
	$(RUN)/python benchmarks/calls.py --write docs/benchmarks.md

# 5000 random models of each class, about an hour on two cores
rates: setup
	$(RUN)/python benchmarks/rates.py --worlds 5000 --write docs/benchmarks.md

# an hour and a half, in which the machine should do nothing else
bench-service: setup
	PYTHONPATH=tests $(RUN)/python benchmarks/service.py --write docs/service-load.md

# ten thousand jobs on two hundred simulated workers; a quarter of an hour, in which the machine should do nothing else
bench-fleet: setup
	PYTHONPATH=tests $(RUN)/python benchmarks/fleet.py --write docs/service-load.md

# sets of nodes that must stay precise, of the models in the folder MODELS; a quarter of an hour
bench-precision: setup
	PYTHONPATH=tests $(RUN)/python benchmarks/precision.py $(MODELS) --write docs/benchmarks.md

# what becomes of the culprits of docs/compilers.md, whose models are in the folder MODELS; hours
remedies: setup
	$(RUN)/python benchmarks/remedies.py $(MODELS) --write docs/compilers.md

# twenty models from packages of PyPI, with qnn, rknn and tpu-mlir; hours
field: setup
	$(RUN)/python benchmarks/field.py --write docs/field.md

# needs Chromium; on a machine that does nothing else
bench-page: setup
	PYTHONPATH=tests $(RUN)/python benchmarks/page.py --write docs/benchmarks.md

# the pictures in docs/images, of a real server in Chromium
screenshots: setup
	PYTHONPATH=tests $(RUN)/python docs/screenshots.py

# the production topology of docker-compose.yml as plain processes, until Ctrl-C
topology: setup
	PYTHONPATH=tests $(RUN)/python -m support.production.topology

# five minutes: 200 jobs while everything is killed; docs/reliability.md gets its numbers
chaos: setup
	PYTHONPATH=tests $(RUN)/python benchmarks/chaos.py --write docs/reliability.md

# the wheel, installed without anything else on the oldest and the newest Python, where it diagnoses the demo's model

wheel: $(UV)
	rm -rf dist
	$(UV) build --quiet --wheel --out-dir dist
	for version in $(PYTHONS); do \
		$(UV) venv --quiet --clear --python $$version dist/python$$version && \
		$(UV) pip install --quiet --python dist/python$$version/bin/python dist/*.whl && \
		{ dist/python$$version/bin/onnx-bisect run examples/sam_decoder.onnx --backend whitelist --option profile=edgesam --no-cache > dist/report.txt 2> dist/progress.txt; test $$? -eq 1; } && \
		grep "4 ops at 12 places" dist/report.txt || exit 1; \
	done

# known vulnerabilities of what is locked, from osv.dev
audit: setup
	@$(UV) audit --preview-features audit --locked || { test $$? -eq 2 && echo "NOT AUDITED: see above; osv.dev must be reachable."; }

clean:
	rm -rf .uv .venv build dist
