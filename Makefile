# Two commands are all a newcomer needs: `make demo` and `make test`. Each sets itself up.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test setup lint types imports kernels check stubs e2e audit sbom lock bench clean

demo: setup  ## four ways to train on demo data, and a report to read
	@$(BIN)/tacit demo

test: setup lint  ## lint, types, import order and all tests but tests/e2e
	@$(MAKE) --no-print-directory --jobs=2 types imports check

setup: .venv/ready  ## a virtual environment from the lock; repeated only when the lock changes

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tacit needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 …")'
	@echo "Setting up .venv (once; a minute or two) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lint:
	@$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .

types:
	@$(BIN)/mypy

imports:
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

# Kernels come first and in one process: their tests compile them, and all workers read what they left in the cache.
kernels:
	@$(BIN)/pytest tests/kernels

check: kernels
	@$(BIN)/pytest -n auto --dist worksteal --ignore=tests/e2e --ignore=tests/kernels

stubs: setup  ## the estimators' signatures and descriptions, for editors and mypy
	@$(BIN)/python .ci/stubs.py src/tacit/estimator/__init__.pyi

e2e: setup  ## real processes: kills, absences, intruders, deployments; TACIT_KILLS=N for another number than 50
	@$(BIN)/pytest tests/e2e -n auto

bench: setup  ## ratios, measured in one run; needs a C compiler, and TACIT_DATA for the real sets
	@$(BIN)/python -m benchmarks

audit: setup  ## known vulnerabilities in what is locked; says so and ends well where they cannot be looked up
	@$(BIN)/python .ci/audit.py requirements.lock

sbom: setup  ## a CycloneDX list of what is locked, with hashes, in dist/sbom.cdx.json
	@mkdir -p dist
	@$(BIN)/python .ci/sbom.py requirements.lock pyproject.toml > dist/sbom.cdx.json
	@echo "Wrote dist/sbom.cdx.json"

lock:  ## resolve pyproject.toml anew (needs uv)
	@uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet --output-file requirements.lock

clean:
	@rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
