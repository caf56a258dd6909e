# Two commands: `make reproduce` and `make test`. Both make .venv and install the lock first; a second call skips that.
PYTHON ?= python3
TORCH := torch==2.13.0
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
PROFILE ?= quick

# What the library may grow to; these numbers go down (they rose now and then, for intervals over trainings, for GloVe's vectors, for the adversarial test of anybody's selector).
SIZE := tokens=176700 per_line=10.8 studies=13340 skips=0

# What the set-up depends on: the lock, the project's dependencies, and where the clone stands.
KEY := $(shell { cat constraints.txt pyproject.toml; pwd; } | cksum)

# Nothing is downloaded at run time: the Hugging Face libraries stay off the network.
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test lint format figures lock

help:  ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 18

reproduce: setup  ## run the five notebooks (PROFILE=quick) and render the report
	@$(PY) -u -m dialnb reproduce --profile $(PROFILE)

test: lint  ## lint, then the whole test suite
	@echo "== Tests"
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile -rs

lint: setup  ## ruff, formatting, notebooks without outputs, and the size of the library
	@echo "== Lint"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m nbstripout --keep-id --verify notebooks/*.ipynb
	@$(PY) -m tools.size $(SIZE)

format: setup  ## format the code and strip the notebooks
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@$(PY) -m nbstripout --keep-id notebooks/*.ipynb

figures: setup  ## redraw the figures that stand in the README
	@$(PY) -m tools.overview figures

setup:  ## make .venv and install the lock (skipped when it is up to date)
	@if [ "$$(cat .venv/.installed 2>/dev/null)" = "$(KEY)" ]; then exit 0; fi; set -e; \
	found=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo missing); \
	case "$$found" in 3.11|3.12|3.13) ;; *) \
	  echo "dialnb needs Python 3.11, 3.12 or 3.13, but '$(PYTHON)' is $$found. Name another: make $(or $(MAKECMDGOALS),test) PYTHON=python3.12" >&2; exit 1;; \
	esac; \
	echo "== Set-up: .venv with Python $$found (once; a few minutes)"; \
	$(PYTHON) -m venv .venv; \
	$(PIP) install --progress-bar off -c constraints.txt $(TORCH); \
	$(PIP) install --progress-bar off -c constraints.txt -e '.[dev]'; \
	$(PIP) install --progress-bar off -c constraints.txt -e '.[mteb]' || \
	  echo "mteb could not be installed here (one of its packages has no wheel for every platform): its tests will be skipped." >&2; \
	echo "$(KEY)" > .venv/.installed

lock:  ## renew constraints.txt from pyproject.toml
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install $(TORCH) -e '.[bench,dev,sweep]'
	{ grep '^#' constraints.txt; build/lock/bin/python -m pip freeze --all --exclude pip --exclude-editable | sed 's/+.*$$//' | LC_ALL=C sort -f; } > build/constraints.txt
	mv build/constraints.txt constraints.txt && rm -rf build/lock
