"""The scale of the loss in float16, against `torch.amp.GradScaler`, in one process and on ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import read_configuration
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.optimizers.wrapped_optimizers import LossScaling
from mpi_learn.training.train import check
from tests.optional_packages import needs
from tests.world import in_world

pytestmark = needs("torch")

PROGRAM = Path(__file__).parent / "programs" / "float16.py"


def test_scale_and_weights_follow_those_of_pytorch():
    import torch

    theirs = torch.nn.Parameter(torch.ones(3))
    steps, scaler = torch.optim.SGD([theirs], lr=0.001, momentum=0.9), torch.amp.GradScaler("cpu")
    weights = np.ones(3, np.float32)
    made = make_optimizer(Sgd(name="sgd", learning_rate=0.001, momentum=0.9), FlatLayout.of([weights]))
    ours = LossScaling(made)
    random = np.random.default_rng(0)
    for step in range(2100):
        gradient = random.normal(size=3).astype(np.float32)
        if step in (0, 1, 50):
            gradient[step % 3] = (np.inf, np.nan)[step % 2]
        scaler.scale(torch.ones(()))  # it creates its scale here
        theirs.grad = scaler.get_scale() * torch.from_numpy(gradient)
        scaler.step(steps)
        scaler.update()
        ours.update(weights, 4 * gradient, 0.25)
        assert ours.scale() == scaler.get_scale(), step
    assert ours.scale() == 2.0**14  # halved three times, and doubled after 2000 steps
    assert made.n_steps == 2097
    np.testing.assert_allclose(weights, theirs.detach().numpy(), rtol=1e-4)


def test_nan_of_the_model_itself_reaches_the_weights_at_scale_1():
    weights = np.ones(3, np.float32)
    ours = LossScaling(make_optimizer(Sgd(name="sgd", learning_rate=0.1), FlatLayout.of([weights])))
    gradient = np.array([np.nan, 0, 0], np.float32)
    for _ in range(16):
        ours.update(weights, gradient)
        assert np.all(weights == 1)
    assert ours.scale() == 1
    ours.update(weights, gradient)
    assert np.isnan(weights[0])


MODELS = """
from torch import nn

def plain(): return nn.Linear(4, 1)
def hooked():
    module = plain()
    module.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return module
"""


@pytest.fixture
def training(tmp_path):
    (tmp_path / "m.py").write_text(MODELS)
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    samples = Samples((x,), (300 * x[:, :1],))
    arrays = Dataset(samples, samples, None, np.arange(0))

    def run(command, model):
        wanted = {"model": f"{tmp_path}/m.py:{model}", "loss": "mse", "precision": "mixed_float16", "batch_size": 16}
        return command(read_configuration(wanted), MPI.COMM_SELF, data=arrays)

    return run


def test_check_accepts_gradients_that_overflow_with_the_first_scale(training):
    assert "gradient     norm" in training(check, "plain")


def test_float16_refuses_hooks_that_would_receive_scaled_gradients(training):
    with pytest.raises(ModelError, match=r"precision: weight has a hook"):
        training(check, "hooked")


@pytest.mark.mpi
def test_ranks_leave_out_the_same_steps_as_one_process(tmp_path):
    """Large labels are on one rank alone: in the first steps, its gradient overflows."""
    done = in_world(2, str(PROGRAM), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["left out"] == [True, False], "one rank alone overflows"
    assert found["scale"] == found["plain scale"] == found["scale of a resumed training"] < 2.0**16
    assert found["differs between ranks"] == 0
    np.testing.assert_allclose(found["losses"], found["plain losses"], rtol=1e-3)
    np.testing.assert_allclose(found["resumed losses"], found["losses"], rtol=1e-6)
