# make demo: see it work.  make test: everything CI checks.  make install: set-up alone.
# make coverage: the branches that the tests take; longer than the tests alone.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test check coverage install clean

demo: install
	$(BIN)/recoslip demo

test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

coverage: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt 'coverage>=7.10'
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "recoslip needs Python 3.11 or newer; try make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	@echo "installing recoslip and what it needs into .venv; the first time takes some minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(INSTALLED)

clean:
	rm -rf .venv recoslip-demo .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
