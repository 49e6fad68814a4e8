# make demo    ResNet-18 packed for this machine, verified, measured beside ONNX Runtime; needs Python only
# make test    lint, types and all tests; installs the compilers and emulators that they use
# make docs    the documents as a site, in build/site
# make clean   removes what these made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
# Tests that run beside each other: one more than two cores, because some tests wait (for a time-out, a server).
JOBS ?= 3
# Whether packages are those of requirements-ci.txt (make docs: requirements-docs.txt), each file checked by its hash.
# Elsewhere some may not have a file there, and what pyproject.toml allows is taken: make test LOCKED=no does so everywhere.
MATCHES := (3, 11) <= sys.version_info < (3, 14) and (platform.system(), platform.machine()) == ("Linux", "x86_64")
LOCKED ?= $(shell $(PYTHON) -c 'import platform, sys; print("yes" if $(MATCHES) else "no")' 2>/dev/null)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What Python compiles is kept, whatever the environment says: the tests start edgepack a thousand times.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test lint compiled-tests check-python system-packages clean

demo: $(VENV)/.installed
	@mkdir -p $(DEMO)
	$(BIN)/python examples/resnet18.py $(DEMO)/resnet18.onnx
	$(BIN)/edgepack pack $(DEMO)/resnet18.onnx --device host --output $(DEMO)/resnet18-host --force
	$(BIN)/edgepack verify $(DEMO)/resnet18-host --quiet
	$(BIN)/edgepack bench $(DEMO)/resnet18-host --threads 2 --quiet
	$(BIN)/python examples/beside_onnxruntime.py $(DEMO)/resnet18.onnx $(DEMO)/resnet18-host
	@echo "What next:"
	@echo "  $(BIN)/edgepack check MODEL.onnx --device raspberrypi4   # your own model on a board: what would run, how large it is"
	@echo "  $(BIN)/edgepack quantize $(DEMO)/resnet18.onnx --calibrate synthetic -o $(DEMO)/int8.onnx   # int8: a quarter of the size"
	@echo "  docs/getting-started.md   # from here to a board; \`make docs\` makes a site of all documents"

# pip and the system's packages do not wait for each other. Beside mypy, which has one core, the other compiles the
# tests, which each process of pytest would do for itself.
test:
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.test-installed system-packages
	@$(MAKE) --no-print-directory -j 2 lint compiled-tests build/torch/.installed
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -q

lint: $(VENV)/.test-installed
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo

compiled-tests: $(VENV)/.test-installed
	-@$(BIN)/python -m pytest --collect-only -q -p no:cacheprovider >/dev/null

# Neither edgepack nor TVM is needed for it.
docs: $(VENV)/.created
ifeq ($(LOCKED),yes)
	@$(PIP) --require-hashes --only-binary :all: --requirement requirements-docs.txt
else
	@$(PIP) "mkdocs-material>=9.6"
endif
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html"

check-python:
	@$(PYTHON) tools/check_python.py

$(VENV)/.created: | check-python
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The demo installs the package as a user would. Its stamp depends on the sources: a changed package is installed anew.
$(VENV)/.installed: $(VENV)/.created pyproject.toml $(shell find edgepack templates toolchains -type f -not -name '*.pyc' 2>/dev/null)
	@echo "Installing edgepack into $(VENV) ..."
	@$(PIP) .
	@touch $@

# The tests run on the sources in place.
$(VENV)/.test-installed: $(VENV)/.created pyproject.toml requirements-ci.txt
ifeq ($(LOCKED),yes)
	@$(PIP) --require-hashes --only-binary :all: --requirement requirements-ci.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
else
	@$(PIP) --editable ".[dev]"
endif
	@touch $@

# PyTorch stands apart: each process that imports TVM would import it too. Its tests are skipped without it.
build/torch/.installed: $(VENV)/.test-installed requirements-torch.txt
	@mkdir -p build/torch
	@$(PIP) --no-deps --only-binary :all: --no-compile --require-hashes --upgrade --target build/torch \
	    --requirement requirements-torch.txt >build/torch/pip.log 2>&1 \
	    || echo "pip has no PyTorch without CUDA for this machine (build/torch/pip.log): its tests are skipped"
	@touch $@

# TVM's runtime for 64-bit ARM, as wheels of 100 MB, for a slow test (docs/internals/testing.md).
build/tvm-aarch64: $(VENV)/.test-installed
	@$(BIN)/python -m pip freeze | grep '^apache-tvm' | xargs $(BIN)/python -m pip download --quiet --no-deps \
	    --only-binary :all: --platform manylinux_2_28_aarch64 --dest $@

system-packages:
	@tools/system_packages.sh

clean:
	rm -rf "$(VENV)" "$(DEMO)" build dist .mypy_cache .ruff_cache .pytest_cache
