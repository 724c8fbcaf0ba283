# make demo: builds what is needed, then a FLUX.2-klein pipeline makes output.png on "neuron".
# make test: builds what is needed, then runs the linters and all tests.
#
# PYTHON names the interpreter to start from (3.11 or newer). An active virtual environment is used as it is;
# otherwise .venv is created.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),$(CURDIR)/.venv)
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
STAMPS := $(VENV)/.torch_neuronx
SOURCES := $(shell find csrc cmake torch_neuronx -type f ! -name '*.pyc' ! -name '*.so' 2>/dev/null) CMakeLists.txt pyproject.toml
REGISTRY_HINT = echo "error: the package registry cannot be reached or lacks a package: check the network and pip's index settings (pip config list), then run make again" >&2; exit 1

.PHONY: demo test build lint format docs bench clean check-tools

demo: $(STAMPS)/build $(STAMPS)/demo
	$(PY) examples/klein.py

test: lint $(STAMPS)/build $(STAMPS)/demo $(STAMPS)/test
	$(PY) -m pytest $(PYTEST_ARGS)

build: $(STAMPS)/build

lint: $(STAMPS)/test
	$(PY) -m ruff check torch_neuronx tests examples benchmarks tools
	$(PY) tools/check_format.py

format: $(STAMPS)/test
	$(PY) -m ruff check --fix-only -q torch_neuronx tests examples benchmarks tools
	$(PY) tools/check_format.py --fix

docs: $(STAMPS)/build
	$(PY) tools/generate_docs.py

bench: $(STAMPS)/build $(STAMPS)/demo
	$(PY) -m benchmarks.run

clean:
	rm -rf build dist torch_neuronx/*.so $(CURDIR)/.venv demo-model output.png

check-tools:
	@test -n "$(PYTHON)" || { echo "error: no Python found: install Python 3.11 (Debian: apt-get install python3.11 python3.11-venv)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11: install Python 3.11 (Debian: apt-get install python3.11 python3.11-venv) or set PYTHON=" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@command -v g++ >/dev/null || { echo "error: no C++ compiler found: install g++ 12 or newer (Debian: apt-get install g++)" >&2; exit 1; }
	@echo 'int main(){}' | g++ -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || { echo "error: g++ does not know C++20: install g++ 12 or newer (Debian: apt-get install g++)" >&2; exit 1; }

$(STAMPS)/venv: | check-tools
	@test -x $(PY) || "$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# torch first and alone: a plain "torch" of another requirement would bring a build of several gigabytes.
$(STAMPS)/torch: requirements/torch.txt | $(STAMPS)/venv
	$(PIP) install -r requirements/torch.txt || { $(REGISTRY_HINT); }
	@touch $@

$(STAMPS)/tools: requirements/build.txt $(STAMPS)/torch
	$(PIP) install -r requirements/build.txt || { $(REGISTRY_HINT); }
	@touch $@

$(STAMPS)/demo: requirements/demo.txt $(STAMPS)/torch
	$(PIP) install -r requirements/demo.txt || { $(REGISTRY_HINT); }
	@touch $@

$(STAMPS)/test: requirements/test.txt $(STAMPS)/torch
	$(PIP) install -r requirements/test.txt || { $(REGISTRY_HINT); }
	@touch $@

# The build tree in build/ is kept, so only what changed is compiled again.
$(STAMPS)/build: $(SOURCES) $(STAMPS)/tools
	$(PIP) install --no-build-isolation --no-deps -e .
	@touch $@
