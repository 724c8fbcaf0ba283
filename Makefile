# make demo: builds what is needed, then a FLUX.2-klein pipeline makes output.png on "neuron".
# make demo-tp: the same with the transformer shared by 8 ranks, each with a NeuronCore (RANKS=n).
# make test: builds what is needed, then runs the linters and all tests.
#
# An active virtual environment is used as it is; otherwise .venv is created. PYTHON names the
# interpreter to start from (3.11 or newer). PYTEST_ARGS replaces the arguments of pytest.

VENV := $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),$(CURDIR)/.venv)
PYTHON ?= $(shell $(if $(VIRTUAL_ENV),echo $(VENV)/bin/python,command -v python3.11 || command -v python3))
PYTEST_ARGS ?= -n 2
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
STAMPS := $(VENV)/.torch_neuronx
SOURCES := $(shell find csrc cmake torch_neuronx -type f ! -name '*.pyc' ! -name '*.so' 2>/dev/null) \
           CMakeLists.txt pyproject.toml
PYTHON_CODE := torch_neuronx tests examples benchmarks tools

FAIL = { echo "error: $(1)" >&2; exit 1; }
REGISTRY_HINT = the package registry cannot be reached or lacks a package: check the network and \
                pip's index settings (pip config list), then run make again

.PHONY: demo demo-tp test build venv lint format docs bench clean check-tools

demo: $(STAMPS)/build $(STAMPS)/requirements-demo
	$(PY) examples/klein.py

RANKS ?= 8
demo-tp: $(STAMPS)/build $(STAMPS)/requirements-demo
	$(PY) -m torch.distributed.run --nproc_per_node=$(RANKS) examples/tensor_parallel_neuron.py --size small
	$(PY) -m torch.distributed.run --nproc_per_node=$(RANKS) examples/tensor_parallel_neuron.py --size small --compile

test: lint $(STAMPS)/build $(STAMPS)/requirements-demo
	$(PY) -m pytest $(PYTEST_ARGS)

build: $(STAMPS)/build

venv: $(STAMPS)/venv

lint: $(STAMPS)/requirements-test
	$(PY) -m ruff check $(PYTHON_CODE)
	$(PY) -m ruff format --check -q $(PYTHON_CODE)
	$(PY) tools/check_format.py

format: $(STAMPS)/requirements-test
	$(PY) -m ruff check --fix-only -q $(PYTHON_CODE)
	$(PY) -m ruff format -q $(PYTHON_CODE)
	$(PY) tools/check_format.py --fix

docs: $(STAMPS)/build
	$(PY) tools/generate_docs.py

bench: $(STAMPS)/build $(STAMPS)/requirements-demo
	$(PY) -m benchmarks.eager

clean:
	rm -rf build dist $(CURDIR)/.venv demo-model output.png

check-tools:
	@test -n "$(PYTHON)" || $(call FAIL,no Python found: install Python 3.11 (Debian: apt-get install python3.11 python3.11-venv))
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || $(call FAIL,$(PYTHON) is not Python 3.11 or newer: install it (Debian: apt-get install python3.11 python3.11-venv) or set PYTHON=)
	@"$(PYTHON)" -c 'import venv$(comma) ensurepip' 2>/dev/null || $(call FAIL,$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv))
	@command -v g++ >/dev/null || $(call FAIL,no C++ compiler found: install g++ 12 or newer (Debian: apt-get install g++))
	@test "$$(g++ -dumpversion | cut -d. -f1)" -ge 12 || $(call FAIL,g++ $$(g++ -dumpversion) is too old: install g++ 12 or newer (Debian: apt-get install g++))
comma := ,

$(STAMPS)/venv: | check-tools
	@test -x $(PY) || "$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# torch first and alone: its version decides everything else's.
$(STAMPS)/requirements-torch: requirements/torch.txt | $(STAMPS)/venv
	@echo "installing requirements/torch.txt"
	@$(PIP) install -r requirements/torch.txt || $(call FAIL,$(REGISTRY_HINT))
	@touch $@

$(STAMPS)/requirements-%: requirements/%.txt $(STAMPS)/requirements-torch
	@echo "installing requirements/$*.txt"
	@$(PIP) install -r requirements/$*.txt || $(call FAIL,$(REGISTRY_HINT))
	@touch $@

# The build tree in build/ is kept, so only what changed is compiled again. The stamp is as old as
# the build's start: what is edited meanwhile is built next time.
$(STAMPS)/build: $(SOURCES) $(STAMPS)/requirements-build
	@echo "building the extension (minutes the first time)"
	@touch $@.started
	@$(PIP) install --no-build-isolation --no-deps -e .
	@mv $@.started $@
