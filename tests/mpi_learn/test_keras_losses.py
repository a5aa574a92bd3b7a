"""The divisors of the losses of Keras models: several ranks must train like one rank with all samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import WEIGHT
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.settings import Example
from mpi_learn.settings.component import Component
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.optional_packages import is_installed, needs

if is_installed("keras"):
    import keras

pytestmark = needs("keras")
HERE = Path(__file__).parent
KINDS = f"{HERE}/conformance/keras_models.py"
rng = np.random.default_rng(0)
X = rng.normal(size=(20, 5)).astype("f")
Y = rng.normal(size=(20, 1)).astype("f")
CLASSES = np.where(np.arange(20) < 8, 2, rng.integers(0, 2, 20))
"""Most labels of the first half are 2, and none of the second half."""
WEIGHTS = np.where(np.arange(20) < 10, 0.2, 3.0).astype("f")


def loss(name, **arguments):
    return Component(name=name, **arguments)


WEIGHTED = {"reduction": "mean_with_sample_weight"}
ONE_OUTPUT = {
    "weighted mean of an output by name": ("build_with_none", {"out": loss("MeanSquaredError", **WEIGHTED)}, (Y,)),
    "weighted mean": ("dense", loss("MeanSquaredError", **WEIGHTED), (Y,)),
    "weighted mean of two outputs": ("two_outputs", [loss("MeanSquaredError", **WEIGHTED)] * 2, (Y, Y)),
    "ignored class": ("classes", loss("sparse_categorical_crossentropy", ignore_class=2), (CLASSES,)),
    "ignored class of a class": (
        "classes", loss("keras.losses:SparseCategoricalCrossentropy", ignore_class=2), (CLASSES,),
    ),
    "ignored class of a function": (
        "classes", loss("keras.losses:sparse_categorical_crossentropy", ignore_class=2), (CLASSES,),
    ),
    "ignored class of a compiled model": ("compiled_with_ignored_class", None, (CLASSES,)),
}  # fmt: skip


@pytest.mark.parametrize(("build", "losses", "y"), ONE_OUTPUT.values(), ids=ONE_OUTPUT)
def test_steps_of_two_halves_are_the_step_of_the_whole(build, losses, y):
    weights = (WEIGHTS,) if y[0] is Y else ()
    model = make_model(model_settings(f"{KINDS}:{build}", loss=losses, seed=1), Example((X,), y, weights))
    parts = (slice(None), slice(0, 10), slice(10, 20))
    whole, *halves = (
        model.gradient((X[part],), [label[part] for label in y], [array[part] for array in weights]).copy()
        for part in parts
    )
    n = model.layout.without_counts.size
    assert whole[:n].any()
    np.testing.assert_allclose(sum(halves)[:n], whole[:n], rtol=1e-4, atol=1e-5)
    at = model.layout.size + WEIGHT
    assert sum(halves)[at] == pytest.approx(whole[at])


@pytest.mark.parametrize("first", [loss("mse"), loss("huber", delta=2.0)], ids=["function", "object"])
def test_masked_steps_of_two_halves_are_the_step_of_the_whole(first):
    """Two outputs have the same mask, which leaves out most of the first half."""
    x = rng.normal(size=(20, 4, 3)).astype("f")
    x[:8, 1:] = 0
    y = (rng.random((20, 4, 2)).astype("f"), rng.integers(0, 2, (20, 4)))
    settings = model_settings(f"{KINDS}:masked_pair", loss=[first, loss("sparse_categorical_crossentropy")], seed=1)
    model = make_model(settings, Example((x,), y))
    whole, *halves = (
        model.gradient((x[part],), [label[part] for label in y]).copy()
        for part in (slice(None), slice(0, 10), slice(10, 20))
    )
    n, at = model.layout.without_counts.size, model.layout.size + WEIGHT
    assert whole[at] == 8 + 12 * 4
    np.testing.assert_allclose(sum(halves)[:n], whole[:n], rtol=1e-4, atol=1e-5)


def test_axis_of_the_classes_is_refused_by_keras_and_not_the_labels():
    """Keras on TensorFlow has classes along the last axis only, so that no labels would fit."""
    wanted = loss("sparse_categorical_crossentropy", axis=1)
    example = Example((rng.normal(size=(20, 6, 6, 1)).astype("f"),), (rng.integers(0, 6, (20, 6, 3)),))
    with pytest.raises(ModelError, match="Only axis=-1 is currently supported"):
        make_model(model_settings(f"{KINDS}:segmentation", loss=wanted), example)


DIFFERENT = {
    "an ignored class": [loss("mse"), loss("sparse_categorical_crossentropy", ignore_class=1)],
    "a weighted mean": [loss("MeanSquaredError", **WEIGHTED), loss("sparse_categorical_crossentropy")],
}


@pytest.mark.parametrize("losses", DIFFERENT.values(), ids=DIFFERENT)
def test_weight_of_a_batch_is_its_number_of_samples_if_losses_have_different_divisors(losses):
    """The outputs have the same mask, and the first of them has no ignored class."""
    x = rng.normal(size=(20, 4, 3)).astype("f")
    x[:10, 1:] = 0
    y = (rng.random((20, 4, 2)).astype("f"), rng.integers(0, 2, (20, 4)))
    weights = (np.full((20, 1), 0.5, np.float32),)
    model = make_model(model_settings(f"{KINDS}:masked_pair", loss=losses), Example((x,), y, weights))
    assert model.gradient((x,), y, weights)[model.layout.size + WEIGHT] == 20


def test_one_rank_takes_negative_weights_as_keras_does():
    """Several ranks refuse them: the mean over other batches is another one."""
    weights = np.where(np.arange(20) % 3, WEIGHTS, -WEIGHTS)
    samples = Samples((X,), (Y,), (weights,))
    configuration = {"model": f"{KINDS}:dense", "loss": {"name": "MeanSquaredError", **WEIGHTED}, "batch_size": 20}
    found = train(configuration | {"epochs": 1}, MPI.COMM_SELF, data=Dataset(samples, samples))
    model = found.model
    model.compile(loss=keras.losses.MeanSquaredError(**WEIGHTED), run_eagerly=True)
    expected = model.evaluate(X, Y, sample_weight=weights, batch_size=20, verbose=0)
    assert found.history["val_loss"] == [pytest.approx(expected, rel=1e-4)]
