"""Buffers of PyTorch modules that get their sizes in the first batch, such as those of quantisation-aware training."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ConfigurationError
from tests.optional_packages import needs

pytestmark = needs("torch")

N, BATCH = 24, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4)).astype(np.float32)
Y = (X.sum(1, keepdims=True) + 0.1 * RNG.normal(size=(N, 1))).astype(np.float32)


def trained(name, epochs, **changes):
    samples = Samples((X,), (Y,))
    dataset = Dataset(samples, samples, None, np.arange(N))
    configuration = {
        "model": f"tests.mpi_learn.torch_models_for_tests:{name}",
        "loss": "mse",
        "optimizer": {"name": "sgd", "learning_rate": 0.05},
        "batch_size": BATCH,
        "epochs": epochs,
        "data": {"train": ["unused.npz"], "features": "x", "labels": "y", "shuffle": False},
    }
    return train(configuration | changes, MPI.COMM_SELF, data=dataset)


def plain_losses(name, epochs):
    """The losses of training and validation of a plain loop of PyTorch."""
    import torch

    from tests.mpi_learn import torch_models_for_tests

    torch.manual_seed(0)
    module = getattr(torch_models_for_tests, name)()
    optimizer = torch.optim.SGD(module.parameters(), 0.05)
    x, y, history = torch.from_numpy(X), torch.from_numpy(Y), []
    for _ in range(epochs):
        module.train()
        losses = []
        for first in range(0, N, BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(module(x[first : first + BATCH]), y[first : first + BATCH])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        module.eval()
        with torch.no_grad():
            history.append((np.mean(losses), torch.nn.functional.mse_loss(module(x), y).item()))
    return np.transpose(history)


@pytest.mark.parametrize("name", ["build_quantised", "build_scaled"])
def test_it_trains_as_a_plain_loop_does_and_resumes_exactly(tmp_path, name):
    whole = trained(name, 4, validation={"batch_size": N}).history
    assert np.allclose([whole["loss"], whole["val_loss"]], plain_losses(name, 4), rtol=1e-5)
    checkpoint = {"checkpoint": {"path": str(tmp_path / "saved")}, "validation": {"batch_size": N}}
    trained(name, 2, **checkpoint)
    assert trained(name, 4, **checkpoint).history == whole


def test_the_copy_that_a_thread_validates_gets_the_sizes():
    """The observers of a quantised model also change in validation, those of the copy without effect."""
    in_thread = trained("build_scaled", 3, validation={"batch_size": N, "mode": "thread"}).history
    assert in_thread == trained("build_scaled", 3, validation={"batch_size": N}).history


def test_an_average_in_every_step_needs_the_sizes_before():
    with pytest.raises(ConfigurationError, match="sync_batchnorm: the model has buffers that get their sizes"):
        trained("build_scaled", 1, sync_batchnorm=True)
