# make demo    ResNet-18 packed for this machine, verified and measured; needs Python only
# make test    lint, types and all tests; installs the compilers and emulators that they use
# make clean   removes what these made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
# Tests that run beside each other: one more than two cores, because some tests wait (for a time-out, a server).
JOBS ?= 3

.PHONY: demo test lint check-python system-packages clean

demo: $(VENV)/.installed
	@mkdir -p $(DEMO)
	$(BIN)/python examples/resnet18.py $(DEMO)/resnet18.onnx
	$(BIN)/edgepack pack $(DEMO)/resnet18.onnx --device host --output $(DEMO)/resnet18-host --force
	$(BIN)/edgepack verify $(DEMO)/resnet18-host
	$(BIN)/edgepack bench $(DEMO)/resnet18-host --threads 2

test: $(VENV)/.test-installed system-packages lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -q

lint: $(VENV)/.test-installed
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo

check-python:
	@$(PYTHON) tools/check_python.py

$(VENV)/.created: | check-python
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The demo installs the package as a user would. Its stamp depends on the sources: a changed package is installed anew.
$(VENV)/.installed: $(VENV)/.created pyproject.toml $(shell find edgepack templates toolchains -type f -not -name '*.pyc' 2>/dev/null)
	@echo "Installing edgepack into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check .
	@touch $@

# The tests run on the sources in place.
$(VENV)/.test-installed: $(VENV)/.created pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

system-packages:
	@tools/system_packages.sh

clean:
	rm -rf "$(VENV)" "$(DEMO)" build dist .mypy_cache .ruff_cache .pytest_cache
