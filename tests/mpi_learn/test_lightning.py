"""Modules of PyTorch Lightning, and of a stand-in for it, train as by its trainer."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from mpi_learn import train
from mpi_learn.errors import ModelError
from mpi_learn.mpi.library import MPI
from tests.mpi_learn.conformance.rows import written
from tests.optional_packages import needs

pytestmark = needs("torch")
OF_LIGHTNING = needs("torchmetrics", "fsspec", "aiohttp")
"""Packages that Lightning imports."""
PACKAGES = [
    "",
    *(
        pytest.param(name, marks=OF_LIGHTNING)
        for name in ("pytorch_lightning", "lightning.pytorch")
        if find_spec(name.partition(".")[0])
    ),
]
"""The stand-in, and those that are installed."""
MODELS = """
import importlib
from tests.mpi_learn.conformance import lightning

def build(package="", **options):
    import torch
    torch.manual_seed(5)
    base = importlib.import_module(package).LightningModule if package else lightning.LightningModule
    return lightning.module(base, **options)
"""


@pytest.fixture
def trained(tmp_path):
    (tmp_path / "m.py").write_text(MODELS)
    training, validation = map(str, written(tmp_path))
    data = {"train": training, "validation": validation, "features": "X", "labels": "y", "shuffle": False}

    def run(on_note=None, precision="float32", learning_rate=0.1, **parameters):
        configuration = {
            "model": f"{tmp_path}/m.py:build", "parameters": parameters, "data": data, "batch_size": 24, "epochs": 2,
            "optimizer": {"name": "sgd", "learning_rate": learning_rate}, "precision": precision,
        }  # fmt: skip
        return train(configuration, MPI.COMM_SELF, on_note=on_note)

    return run


@pytest.mark.parametrize("package", PACKAGES)
def test_the_losses_are_those_of_the_trainer_of_lightning(trained, package):
    history = trained(package=package).history
    np.testing.assert_allclose(history["loss"], [1.50498, 1.49628], atol=1e-5)  # of Lightning 2.6.6, with the same
    np.testing.assert_allclose(history["val_loss"], [0.69637, 0.55864], atol=1e-5)  # optimizer and order of samples
    np.testing.assert_allclose(history["val_mae"], [0.61751, 0.57346], atol=1e-5)
    assert len(history["mae"]) == 2


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("manual", "automatic_optimization = False"),
        ("hook", "Module overrides on_train_epoch_end"),
        ("epoch", "training_step of Module uses current_epoch"),
        ("step", "training_step of Module uses global_step"),
        ("index", "uses the number of the batch"),
        ("optimizers", "training_step of Module uses strategy"),
        ("no validation", "Module has no validation_step"),
    ],
)
def test_a_module_that_needs_a_trainer_is_refused(trained, package, kind, said):
    with pytest.raises(ModelError, match=said):
        trained(package=package, kind=kind)


def test_gradients_too_small_for_float16_are_scaled(trained):
    plain, scaled = (
        trained(kind="small", learning_rate=1e8, precision=precision).history
        for precision in ("float32", "mixed_float16")
    )
    assert plain["val_loss"][1] < 0.9 * plain["val_loss"][0]
    np.testing.assert_allclose(scaled["val_loss"], plain["val_loss"], rtol=0.01)


def test_a_note_says_that_the_optimizer_is_not_that_of_the_module(trained):
    notes = []
    trained(on_note=notes.append)
    assert notes == ["configure_optimizers of Module is not called: the optimizer is that of the file"]


def test_the_module_is_as_the_user_has_made_it_after_the_training(trained):
    module = trained().model
    assert "log" not in vars(module)
    assert module._trainer is None
