"""Losses that compare samples are found; usual losses are not taken for them."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import read_configuration, train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.model import COMPARES_SAMPLES, compares_samples
from mpi_learn.models.settings import Example
from mpi_learn.training.train import check
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.optional_packages import needs

RNG = np.random.default_rng(3)
X = RNG.normal(size=(16, 4)).astype(np.float32)
Y = RNG.integers(0, 2, (16, 1)).astype(np.float32)
WEIGHTS = RNG.uniform(0.1, 2, 16).astype(np.float32)

TORCH = """
import torch
from torch import nn
from torch.nn import functional as F

def plain(): return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
def normalised(): return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

class Sampling(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)
    def forward(self, x): return self.out(x + torch.randn_like(x))

def mean(o, y): return ((o - y) ** 2).mean()
def each(o, y): return (o - y).abs().squeeze(1)
def focal(o, y):
    p = torch.sigmoid(o)
    return -(y * (1 - p) ** 2 * p.log() + (1 - y) * p ** 2 * (1 - p).log()).mean()
def masked(o, y): return F.binary_cross_entropy_with_logits(o, y, weight=(y > 0).float() + 0.1)
def constant(o, y): return (o * 0).mean()

def contrastive(o, y): return F.cross_entropy(-(o - o.T) ** 2, torch.arange(len(o)))
def correlated(o, y):
    a, b = (o - o.mean()).ravel(), (y - y.mean()).ravel()
    return ((o - y) ** 2).mean() + 0.5 * (a * b).mean().abs()
def spread(o, y): return ((o - y) ** 2).mean() / o.std()
def divided(o, y): return ((y > 0) * (o - y) ** 2).sum() / (y > 0).sum()
"""

KERAS = """
import keras
from keras import ops

def plain(): return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
def penalised():
    dense = keras.layers.Dense(8, kernel_regularizer="l2", activity_regularizer="l2")
    return keras.Sequential([keras.Input((4,)), dense, keras.layers.BatchNormalization(), keras.layers.Dense(1)])

class Sampled(keras.layers.Layer):
    def call(self, x): return x + keras.random.normal(ops.shape(x))
def sampling(): return keras.Sequential([keras.Input((4,)), Sampled(), keras.layers.Dense(1)])

def mean(y, o): return ops.mean(ops.square(y - o))
def each(y, o): return ops.mean(ops.square(y - o), -1)
def spread(y, o): return ops.mean(ops.square(y - o)) / ops.std(o)
class Own(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(ops.square(y - y_pred)) + 0.1 * ops.square(ops.mean(y_pred))
def own():
    i = keras.Input((4,))
    return Own(i, keras.layers.Dense(1)(i))
"""


@pytest.fixture
def answer(tmp_path):
    """Whether the loss of a model, both given by their names in a source, compares samples."""

    def of(source, model, loss, weights=()):
        (tmp_path / "m.py").write_text(source)
        settings = model_settings(
            f"{tmp_path / 'm.py'}:{model}", loss=loss and f"{tmp_path / 'm.py'}:{loss}", n_workers=2
        )
        example = Example([X], [Y], weights)
        made = make_model(settings, example)
        before = made.state.floats(), made.state.integers(), made.weights.copy()
        found = compares_samples(made, example, "float32")
        after = made.state.floats(), made.state.integers(), made.weights
        assert all(map(np.array_equal, before, after))
        assert list(made.notes) == ([COMPARES_SAMPLES] if found else [])
        return found

    return of


@needs("torch")
@pytest.mark.parametrize("loss", ["contrastive", "correlated", "spread", "divided"])
def test_a_loss_of_pytorch_that_compares_samples_is_found(answer, loss):
    assert answer(TORCH, "plain", loss)


@needs("torch")
@pytest.mark.parametrize("loss", ["mean", "each", "focal", "masked", "constant"])
def test_a_usual_loss_of_pytorch_is_none_that_compares_samples(answer, loss):
    assert not any(answer(TORCH, model, loss) for model in ("plain", "normalised", "Sampling"))
    assert loss != "each" or not answer(TORCH, "plain", loss, [WEIGHTS])


@needs("keras")
def test_losses_of_keras(answer):
    assert answer(KERAS, "plain", "spread")
    assert answer(KERAS, "own", None)
    for model, loss, weights in (("penalised", "mean", ()), ("sampling", "mean", ()), ("plain", "each", [WEIGHTS])):
        assert not answer(KERAS, model, loss, weights), model
    assert answer(KERAS, "plain", "mean", [WEIGHTS])  # Keras multiplies the mean over the batch by each weight


@needs("torch")
def test_the_check_and_the_start_on_several_ranks_say_so(tmp_path):
    (tmp_path / "m.py").write_text(TORCH)
    samples = Samples((X,), (Y,))
    dataset, notes = Dataset(samples, samples, None, np.arange(0)), []
    configuration = read_configuration(
        {"model": f"{tmp_path}/m.py:plain", "loss": f"{tmp_path}/m.py:spread", "data": None, "batch_size": 8}
    )
    lines = check(configuration, MPI.COMM_SELF, data=dataset).splitlines()
    assert f"note         {COMPARES_SAMPLES}" in lines
    usual = configuration.model_copy(update={"loss": f"{tmp_path}/m.py:mean"})
    assert "note" not in check(usual, MPI.COMM_SELF, data=dataset)
    train(configuration, MPI.COMM_SELF, data=dataset, on_note=notes.append)
    assert notes == []  # one rank
