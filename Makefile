# make demo: see it work.  make test: everything CI checks.  make quick: its fast part, for the working day.
# make long: the same at more places, such as a kill at any change of the disk, and with more cases.
# make torture: half an hour of processor time of what may go wrong around a command.
# make docs: the documentation as a site, in site/.  make gallery: its real pages, which takes minutes, before make docs.
# make install: set-up for tests alone.  make coverage: the branches that the tests take; longer than the tests alone.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := networks,review
PYTEST := -m pytest -n 3 --dist worksteal  # one more than the cores: tests of clusters wait for processes of their own

.PHONY: demo test quick long torture check coverage docs gallery install clean

demo: .venv/.demo
	$(BIN)/recoslip demo

test: check
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m 'not long'

long: install
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m long

quick: check
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m 'not slow and not long'

coverage: install
	$(PIP) 'coverage>=7.10'
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

torture: install
	$(BIN)/python -W ignore benchmarks/torture.py

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet  # docs/decisions/packaging.md says what is not warned of

gallery: .venv/.demo
	$(PIP) -e '.[cells,review]'
	$(BIN)/python docs/gallery.py docs/gallery

install: .venv/.dev

# One stamp for each set of installed packages; that of the tests includes that of the demo.
.venv/.demo: pyproject.toml constraints.txt
	$(call install,$(DEMO))
	@touch .venv/.demo

.venv/.docs: pyproject.toml constraints.txt
	$(call install,docs)
	@touch .venv/.docs

.venv/.dev: pyproject.toml constraints.txt
	$(call install,dev)
	@touch .venv/.demo .venv/.docs .venv/.dev

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "recoslip needs Python 3.11 or newer; try make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	@echo "installing recoslip and what it needs into .venv; the first time takes some minutes"
	$(PIP) -e '.[$(1)]'
endef

clean:
	rm -rf .venv recoslip-demo site docs/gallery .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
