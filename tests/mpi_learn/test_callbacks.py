"""Callbacks of the user: which are called, on which rank, and which are refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import ConfigurationError, TrainingError
from mpi_learn.settings.user_code import load_function
from mpi_learn.training.callbacks import Callbacks
from tests.mpi_learn.models_for_tests import line
from tests.mpi_learn.thread_ranks import run_ranks
from tests.mpirun import mpirun

HERE = Path(__file__).parent
FILE = str(HERE / "callbacks_for_tests.py")
TORCH = {"model": f"{HERE}/torch_models_for_tests.py:build_regression", "loss": "mse", "epochs": 4}
KERAS = TORCH | {"model": f"{HERE}/models_for_tests.py:build_regression"}


def calls(function):
    """What the callbacks of the file, as this function's module sees it, have recorded."""
    return load_function(f"{FILE}:{function}").__globals__["CALLS"]


def test_function_gets_epoch_metrics_and_model_and_stops_the_training():
    recorded = calls("stop_after_two")
    recorded.clear()
    result = train(TORCH | {"callbacks": f"{FILE}:stop_after_two"}, MPI.COMM_SELF, data=line())
    assert recorded == [(epoch, ["loss", "val_loss"], "Sequential") for epoch in (0, 1)]
    assert (result.epochs, result.stopped_by) == (2, "callback")
    made = {"name": f"{FILE}:make_stopping", "at": 2}
    assert train(TORCH | {"callbacks": [made]}, MPI.COMM_SELF, data=line()).epochs == 3


def test_callback_of_keras_sees_the_trained_model_and_stops_the_training(tmp_path):
    recorded = calls("keras_stopping")
    recorded.clear()
    logger = {"name": "CSVLogger", "filename": str(tmp_path / "log.csv")}
    result = train(KERAS | {"callbacks": [f"{FILE}:keras_stopping", logger]}, MPI.COMM_SELF, data=line())
    assert (result.epochs, result.stopped_by) == (2, "callback")
    assert (recorded[0], recorded[-1]) == ("begin", "end")
    assert [one[:2] for one in recorded[1:-1]] == list(enumerate(result.history["loss"]))
    assert recorded[-2][2] == pytest.approx(float(np.sum(result.model.get_weights()[0])))
    with (tmp_path / "log.csv").open() as file:
        assert [float(row["val_loss"]) for row in csv.DictReader(file)] == pytest.approx(result.history["val_loss"])


REFUSED = {
    "early stopping": (KERAS, "EarlyStopping", "write `early_stopping: {metric"),
    "of a factory": (KERAS, "keras.callbacks:TerminateOnNaN", "TerminateOnNaN is not available as a callback"),
    "unknown": (KERAS, "CSVLoger", "did you mean CSVLogger"),
    "arguments": (KERAS, "CSVLogger", "CSVLogger with \\(\\)"),
    "batches": (KERAS, f"{FILE}:of_batches", "acts on batches"),
    "no function": (KERAS, f"{FILE}:nothing", "expected a callback, found int"),
    "keras for torch": (TORCH, "CSVLogger", "there is no callback CSVLogger"),
}


@pytest.mark.parametrize(("common", "name", "said"), REFUSED.values(), ids=REFUSED)
def test_callback_that_is_not_available_is_refused(common, name, said):
    with pytest.raises(ConfigurationError, match=said):
        train(common | {"callbacks": [name]}, MPI.COMM_SELF, data=line())


def test_callback_that_raises_before_the_first_epoch_ends_the_training_on_all_ranks():
    def run(comm):
        with pytest.raises(TrainingError, match="boom"):
            Callbacks([f"{FILE}:raising_in_set_params"], comm, 1, SimpleNamespace(framework="keras"), epochs=1)

    run_ranks(2, run)


PROGRAM = f"""
import json
from mpi4py import MPI
from mpi_learn import train
from mpi_learn.settings.user_code import load_function
from mpi_learn.training.callbacks import Callbacks
from tests.mpi_learn.models_for_tests import line
from tests.mpi_learn.thread_ranks import run_ranks

name = "{FILE}:stop_after_two"
result = train({TORCH!r} | {{"callbacks": name, "algorithm": "downpour"}}, MPI.COMM_WORLD, data=line())
n_calls = MPI.COMM_WORLD.gather(len(load_function(name).__globals__["CALLS"]))
stopped_by = MPI.COMM_WORLD.gather(result.stopped_by)
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps([n_calls, stopped_by]))
"""


@pytest.mark.mpi
def test_callbacks_are_called_on_the_first_worker_and_stop_all_ranks(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = mpirun(3, str(tmp_path / "program.py"), env={"PYTHONPATH": str(Path(__file__).parents[2])})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[0, 2, 0], ["callback"] * 3]
