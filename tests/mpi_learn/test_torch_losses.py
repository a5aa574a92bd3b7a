"""Losses of PyTorch models with the weights of samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpi_learn.models.configuration import ModelSettings
from mpi_learn.models.example import Example
from mpi_learn.models.make_model import make_model
from mpi_learn.settings.component import Component

TORCH = f"{Path(__file__).parent}/torch_models_for_tests.py"
rng = np.random.default_rng(0)
X = rng.random((20, 64)).astype("f")
CLASSES = rng.integers(0, 10, 20)
HALF_IGNORED = np.where(np.arange(20) % 2, CLASSES, -100)
FACTORS = {"weight": list(range(1, 11)), "ignore_index": 3}


def classes_model(arguments, labels, weights=()):
    loss = Component.model_validate({"name": "cross_entropy", **arguments})
    settings = ModelSettings(f"{TORCH}:build_classes", loss=loss, seed=1)
    return make_model(settings, Example((X,), (labels,), weights))


@pytest.mark.parametrize("labels", [CLASSES, HALF_IGNORED], ids=["all labels", "half of the labels"])
@pytest.mark.parametrize("arguments", [{}, FACTORS, {"reduction": "none"}], ids=["plain", "class weights", "each"])
def test_weights_of_one_do_not_change_the_training(arguments, labels):
    if arguments == FACTORS:
        labels = np.where(labels == -100, 3, labels)
    ones = (np.ones(20, np.float32),)
    plain, weighted = classes_model(arguments, labels), classes_model(arguments, labels, ones)
    step = plain.gradient((X,), (labels,)).copy()
    np.testing.assert_allclose(weighted.gradient((X,), (labels,), ones), step, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        weighted.evaluate((X,), (labels,), ones), plain.evaluate((X,), (labels,)), rtol=1e-5, atol=1e-6
    )


def test_weighted_steps_of_two_halves_are_the_step_of_the_whole():
    """Each half has another number of ignored labels."""
    labels, weights = np.where(np.arange(20) < 8, -100, CLASSES), rng.random(20).astype("f")
    model = classes_model({}, labels, (weights,))
    whole, *halves = (
        model.gradient((X[part],), (labels[part],), (weights[part],)).copy()
        for part in (slice(None), slice(0, 10), slice(10, 20))
    )
    n, start = model.layout.without_counts.size, model.layout.size
    for part in (slice(0, n), slice(start, None)):  # the gradient and the sums
        np.testing.assert_allclose(sum(halves)[part], whole[part], rtol=1e-4, atol=1e-6)


def test_weighted_batch_whose_labels_are_all_ignored_has_no_loss():
    labels, ones = np.full(20, -100), (np.ones(20, np.float32),)
    model = classes_model({}, CLASSES, ones)
    assert not model.gradient((X,), (labels,), ones)[: model.layout.size].any()
    assert model.metrics(model.evaluate((X,), (labels,), ones))["loss"] == 0
