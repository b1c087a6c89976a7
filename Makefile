# Everything runs in .venv, made here; nothing is installed anywhere else. `make help` lists the targets.

.DEFAULT_GOAL := help
.PHONY: help demo mpnet test thorough test-all lint unit standin newest mutants documents bench constraints clean
.NOTPARALLEL:

# The first interpreter that is new enough; `make PYTHON=/path/to/python3.12 demo` names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
NEW_ENOUGH = import sys; sys.exit(sys.version_info < (3, 11))
BIN := .venv/bin
DATA ?= ../shared/glue

# What runs here records in mlruns/ here, whatever server the shell speaks to.
unexport MLFLOW_TRACKING_URI
# Container images set it. Each of the tests' processes would compile the package and the tests anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | awk -F'\t' '{ printf "make %-12s %s\n", $$1, $$2 }'

demo: .venv/.demo ## install, search MiniLM on the embedded task (minutes on two cores), print the answer
	$(BIN)/elsa-tune demo

# Nothing else asks for it: neither the demo nor a test downloads weights.
mpnet: .venv/.demo ## install, download MPNet's weights (404 MB), for --model mpnet
	$(BIN)/elsa-tune models mpnet --download

# Three processes, a file or a room of tests/conftest.py at a time, those with whole searches first:
# they wait more than they work.
test: lint ## install, check style, types and floors, run all tests but the thorough ones (5 to 12 minutes)
	$(PYTEST) $(QUICK)
	$(STANDIN) $(QUICK)

# Launches on paper, the notebook, browsers, servers, several nodes, full disks, hubs, real encoders.
thorough: .venv/.serve ## the tests of what rarely breaks
	$(PYTEST) $(THOROUGH)
	$(STANDIN) $(THOROUGH)

test-all: test thorough ## every test, as CI runs it

lint: .venv/.dev ## ruff, mypy and the floors of the package, no tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n 2
	$(BIN)/lint-imports

unit: .venv/.dev ## the fast tests only
	$(BIN)/python -m pytest tests/unit tests/repo $(QUICK)

standin: .venv/.dev ## the tests of what runs on a GPU, on a stand-in for one (needs a C++ compiler)
	$(STANDIN)

# For a nightly run: what will break once the upper bounds in pyproject.toml are raised.
newest: ## the tests of `make test` with the newest version of every package, beyond the tested ones (some GB)
	@"$(PYTHON)" -m venv --clear build/newest
	@build/newest/bin/python -c '$(UNCAPPED)' > build/newest.txt
	@build/newest/bin/python -m pip install -qq --disable-pip-version-check -r build/newest.txt
	@build/newest/bin/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@build/newest/bin/python -m pip list --format freeze | grep -E '$(CAPPED)'
	build/newest/bin/python -m pytest -n 3 $(BY_FILE) $(QUICK)

# What the package and its tests need, without upper bounds; and those packages that have one for being tested.
define UNCAPPED
import re, tomllib; \
project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
extras = project["optional-dependencies"]; \
print(*(re.sub(",<.*", "", one) for one in project["dependencies"] + extras["demo"] + extras["dev"]), sep="\n")
endef
CAPPED = ^(datasets|mlflow|optuna|ray|torch|transformers)==

mutants: .venv/.dev ## 300 small changes to the code that decides answers: do the tests notice? (an hour)
	$(BIN)/python tools/mutants.py

documents: .venv/.dev ## write anew what the documents take from code and measurements
	$(BIN)/python -m tools.documents

bench: .venv/.demo ## measure costs and MiniLM's curves on GLUE data in DATA=../shared/glue, into bench/results
	@test -d "$(DATA)" || { echo "make bench: no GLUE folder at '$(DATA)'; name one with DATA=..." >&2; exit 2; }
	$(BIN)/python bench/footprint.py
	$(BIN)/python bench/step.py --data-dir "$(DATA)"
	$(BIN)/python bench/length_groups.py --data-dir "$(DATA)"
	$(BIN)/python bench/padded_prefix.py
	$(BIN)/python bench/bundle.py
	$(BIN)/python bench/scaling.py rows --data-dir "$(DATA)"
	$(BIN)/python bench/scaling.py trials
	$(BIN)/python bench/faults.py
	$(BIN)/python bench/glue_curves.py --data-dir "$(DATA)"

constraints: .venv/.dev ## resolve constraints.txt anew, keeping every version it still names
	@mkdir -p build
	@$(BIN)/python -m pip install -qq --dry-run --ignore-installed --report build/resolved.json \
		-c constraints.txt -e '.[demo,dev,serve,artifacts]'
	@{ sed '/^[^#]/,$$d' constraints.txt; $(BIN)/python -c '$(PINS)'; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@echo "constraints.txt is resolved; run make test to prove it"

# pip's report as sorted pins: without ourselves, local version tags (+cpu) and the CUDA parts of torch.
define PINS
import json, re; \
found = [i["metadata"] for i in json.load(open("build/resolved.json"))["install"]]; \
pins = {m["name"].lower(): m["name"] + "==" + m["version"].split("+")[0] for m in found}; \
print("\n".join(pins[n] for n in sorted(pins) if not re.match("elsa-tune|nvidia|cuda|triton", n)))
endef

clean: ## remove the environment and every cache; recorded searches in mlruns/ stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: a second call installs nothing until pyproject.toml or constraints.txt changes.
.venv/.demo: .venv/.made pyproject.toml constraints.txt
	$(call install,demo)
	@touch $@

.venv/.dev: .venv/.made pyproject.toml constraints.txt
	$(call install,demo$(comma)dev)
	@touch .venv/.demo $@

# Apart, on top of .venv: with Ray Serve's packages there, every test's Ray would start one more agent.
.venv/.serve: .venv/.dev
	@$(BIN)/python -m venv --clear .venv/serve
	@echo "import site; site.addsitedir('$$($(call site,$(BIN)))')" > "$$($(call site,.venv/serve/bin))/below.pth"
	@.venv/serve/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt 'ray[serve]'
	@touch $@

.venv/.made:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c '$(NEW_ENOUGH)' || { \
		echo "make: elsa-tune needs Python 3.11 or newer, '$(or $(PYTHON),python3)' is not;" \
			"install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@"$(PYTHON)" -m venv .venv || { \
		echo "make: '$(PYTHON) -m venv' failed (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@touch $@

comma := ,
# In processes of their own: the stand-in must be there before torch is.
STANDIN = $(BIN)/python tests/standin/run.py -m pytest -n 2 $(BY_FILE) tests/standin tests/unit/test_gpu.py
PYTEST = $(BIN)/python -m pytest -n 3 $(BY_FILE)
BY_FILE = --dist loadfile --no-loadscope-reorder
QUICK = -m "not thorough"
THOROUGH = -m thorough
site = $(1)/python -c 'import site; print(site.getsitepackages()[0])'
define install
	@echo "Installing elsa-tune[$(1)] into .venv (the first time: minutes, and some GB of disk)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
endef
