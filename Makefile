# Two commands: `make reproduce` and `make test`. Both make .venv and install the lock first; a second call skips that.
PYTHON ?= python3
PY := .venv/bin/python
PROFILE ?= quick

# What the library may grow to; these numbers go down. They rose with version two of the judge, the closed list of what
# drawings of others may hold, refused weights and the start of base size; the plan is 138,000.
SIZE := tokens=189300 per_line=10.7 studies=11700 skips=0

# Nothing is downloaded at run time: the Hugging Face libraries stay off the network.
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1

# What is imported is compiled once: without its bytecode, importing torch and its company takes twice as long each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test lint format figures lock

help:  ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 18

reproduce: setup  ## run the five notebooks (PROFILE=quick) and render the report
	@$(PY) -u -m dialnb reproduce --profile $(PROFILE)

test: lint  ## lint, then the whole test suite
	@echo "== Tests"
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile -rs

lint: setup  ## ruff, formatting, types, notebooks without outputs, and the size of the library
	@echo "== Lint"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m nbstripout --keep-id --verify notebooks/*.ipynb
	@$(PY) -m tools.size $(SIZE)

format: setup  ## format the code and strip the notebooks
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@$(PY) -m nbstripout --keep-id notebooks/*.ipynb

figures: setup  ## redraw the figures that stand in the README
	@$(PY) -m tools.overview figures
	@$(PY) -m tools.effects

setup:  ## make .venv and install the lock (skipped when it is up to date)
	@command -v $(PYTHON) >/dev/null || { echo "dialnb needs Python 3.11, 3.12 or 3.13, but there is no '$(PYTHON)'. Name another: make $(or $(MAKECMDGOALS),test) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) tools/setup.py

lock:  ## renew constraints.txt from pyproject.toml
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install "$$(grep '^torch==' constraints.txt)" uv -e '.[bench,dask,dev,mteb,sweep]'
	{ grep '^#' constraints.txt; build/lock/bin/python -m pip freeze --all --exclude pip --exclude-editable | sed 's/+.*$$//' | LC_ALL=C sort -f; } > build/constraints.txt
	mv build/constraints.txt constraints.txt
	{ grep '^#' tools/hashes.txt; grep -Ev '^(#|torch==)' constraints.txt | build/lock/bin/uv pip compile - -q --no-deps --generate-hashes --universal --python-version 3.11 --no-annotate --no-header; } > build/hashes.txt
	mv build/hashes.txt tools/hashes.txt && rm -rf build/lock
