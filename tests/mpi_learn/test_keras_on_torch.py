"""Keras models with ``KERAS_BACKEND=torch``, against `fit` on the same backend."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from tests.mpi_learn.programs import keras_on_torch
from tests.mpirun import mpirun
from tests.optional_packages import needs

pytestmark = [needs("torch"), needs("keras")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("keras_on_torch")
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 6)).astype(np.float32)
    classes = (x[:, 0] + x[:, 1] > 0).astype(np.int64) + (x[:, 2] > 0)
    with h5py.File(made / "data.h5", "w") as file:
        file["X"], file["classes"], file["one_hot"] = x, classes, np.eye(3, dtype=np.float32)[classes]
        file["binary"], file["real"] = (x[:, 0] > 0).astype(np.float32), 2 * x[:, 3]
        file["weights"] = random.uniform(size=200).astype(np.float32)
    return made


def ran(folder, *cases):
    done = mpirun(2, keras_on_torch.__file__, str(folder), *cases, cwd=folder, env={"KERAS_BACKEND": "torch"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(folder, cases, histories):
    import keras

    with h5py.File(folder / "data.h5") as file:
        x = file["X"][:]
    for case in cases:
        found = histories[case]
        assert set(found["steps"]) == set(found["fit"]), case
        for name, values in found["fit"].items():
            np.testing.assert_allclose(found["steps"][name], values, rtol=1e-5, err_msg=f"{case} {name}, 14 steps")
            if "norm" not in keras_on_torch.CASES[case][2]:  # two ranks normalise the batch of each
                np.testing.assert_allclose(found["both"][name], found["one"][name], rtol=1e-5, err_msg=f"{case} {name}")
        assert keras.backend.backend() == "tensorflow"
        loaded = keras.saving.load_model(folder / f"{case}.keras")
        expected = np.load(folder / f"{case}.npy")
        np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-3, atol=1e-4, err_msg=case)


def test_keras_on_torch_trains_as_fit_and_refuses_what_it_cannot(folder):
    said = ran(folder, "sgd", "auc")
    check(folder, ("sgd", "auc"), said["histories"])
    for name, error in said["refused"].items():
        assert error, f"{name} was not refused"


@pytest.mark.thorough
def test_losses_and_metrics_of_keras_on_torch_are_those_of_fit(folder):
    cases = [case for case in keras_on_torch.CASES if case not in ("sgd", "auc")]
    check(folder, cases, ran(folder, *cases)["histories"])
