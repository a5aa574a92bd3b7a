"""Losses of PyTorch models with the weights of samples, and metrics with labels of other shapes than the outputs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.flat_layout import N_SAMPLES
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.settings import Example
from mpi_learn.settings.component import Component
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.optional_packages import needs

TORCH = f"{Path(__file__).parent}/torch_models_for_tests.py"
TORCHMETRICS = f"{Path(__file__).parent}/torchmetrics_for_tests.py"
TORCH_KINDS = f"{Path(__file__).parent}/conformance/torch_models.py"
pytestmark = needs("torch")
rng = np.random.default_rng(0)
X = rng.random((20, 64)).astype("f")
CLASSES = rng.integers(0, 10, 20)
HALF_IGNORED = np.where(np.arange(20) % 2, CLASSES, -100)
FACTORS = {"weight": list(range(1, 11)), "ignore_index": 3}


def classes_model(arguments, labels, weights=()):
    loss = Component.model_validate({"name": "cross_entropy", **arguments})
    settings = model_settings(f"{TORCH}:build_classes", loss=loss, seed=1)
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


def test_weights_of_one_do_not_change_a_mean_over_the_batch():
    import torch

    from mpi_learn.models.torch_.losses_and_metrics.losses import make_loss

    loss = make_loss(Component.model_validate({"name": "kl_div", "reduction": "batchmean"}))
    outputs, targets = torch.log_softmax(torch.from_numpy(X[:, :4]), 1), torch.full((20, 4), 0.25)
    plain = loss.mean(outputs, targets)
    assert float(plain) > 0
    torch.testing.assert_close(loss.mean(outputs, targets, torch.ones(20)), plain)


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


PAIR = (rng.normal(size=(20, 5)).astype("f"), rng.normal(size=(20, 2)).astype("f"))
ENERGIES = rng.normal(size=(20, 1)).astype("f")
MISSING = np.full(20, -100)


def two_outputs(*losses):
    settings = model_settings(f"{TORCH_KINDS}:two_by_two", loss=list(losses), seed=1)
    return make_model(settings, Example(PAIR, (ENERGIES, CLASSES % 3)))


def test_output_whose_labels_are_all_ignored_has_no_part_in_the_loss():
    """PyTorch's mean over no labels is NaN."""
    both, energy_alone = two_outputs("mse", "cross_entropy"), two_outputs("mse", None)
    y = (ENERGIES, MISSING)
    np.testing.assert_array_equal(both.gradient(PAIR, y), energy_alone.gradient(PAIR, y))
    np.testing.assert_array_equal(both.evaluate(PAIR, y), energy_alone.evaluate(PAIR, y))


def test_outputs_whose_labels_are_all_ignored_have_no_loss():
    model = two_outputs(None, "cross_entropy")
    step = model.gradient(PAIR, (ENERGIES, MISSING))
    assert np.count_nonzero(step) == 1
    assert step[model.layout.size + N_SAMPLES] == 20


def test_steps_of_two_halves_are_the_step_of_the_whole_if_one_of_several_outputs_has_a_loss():
    """Each half has another number of ignored labels."""
    model, kinds = two_outputs(None, "cross_entropy"), np.where(np.arange(20) < 8, -100, CLASSES % 3)
    whole, *halves = (
        model.gradient([one[part] for one in PAIR], (ENERGIES[part], kinds[part])).copy()
        for part in (slice(None), slice(0, 10), slice(10, 20))
    )
    n, start = model.layout.without_counts.size, model.layout.size
    for part in (slice(0, n), slice(start, None)):  # the gradient and the sums
        np.testing.assert_allclose(sum(halves)[part], whole[part], rtol=1e-4, atol=1e-6)


SHAPES = {
    "a column for numbers": ("build_squeezed", (20, 1)),
    "a column for a column": ("build_regression", (20, 1)),
    "numbers for a column": ("build_regression", (20,)),
}


@pytest.mark.parametrize(("build", "shape"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("metric", ["mae", "mse", "accuracy"])
def test_metric_compares_each_label_with_its_output_if_the_shapes_differ_by_axes_of_length_1(metric, build, shape):
    x, y = rng.normal(size=(20, 3)).astype("f"), rng.normal(size=shape).astype("f")
    wanted = Component(name=metric, **({"threshold": 0.5} if metric == "accuracy" else {}))
    settings = model_settings(f"{TORCH}:{build}", loss=f"{TORCH}:squeezed_error", metrics=[wanted], seed=1)
    model = make_model(settings, Example((x,), (y,)))
    (output,) = model.predict((x,))
    difference = output.reshape(20) - y.reshape(20)
    same = (output.reshape(20) > 0.5) == (y.reshape(20) > 0.5)
    expected = {"mae": np.abs(difference).mean(), "mse": (difference**2).mean(), "accuracy": same.mean()}
    assert model.metrics(model.evaluate((x,), (y,)))[metric] == pytest.approx(expected[metric], rel=1e-5)


@pytest.mark.parametrize("metric", ["mae", "mse", {"name": "accuracy", "threshold": 0.5}])
def test_metric_refuses_labels_of_which_each_would_be_compared_with_several_outputs(metric):
    x, y = rng.normal(size=(20, 3)).astype("f"), rng.normal(size=(20, 2)).astype("f")
    wanted = Component.model_validate({"name": metric} if isinstance(metric, str) else metric)
    settings = model_settings(f"{TORCH}:build_regression", loss=f"{TORCH}:loss", metrics=[wanted])
    with pytest.raises(ModelError, match=r"expected labels of shape \(1,\) per sample.*found \(2,\)"):
        make_model(settings, Example((x,), (y,)))


MULTILABEL = {
    "logits": ("binary_cross_entropy_with_logits", "accuracy", 0.0),
    "logits of another loss": ("multilabel_soft_margin_loss", "accuracy", 0.0),
    "scores": ("soft_margin_loss", "accuracy", 0.0),
    "probabilities": ("binary_cross_entropy", "accuracy", 0.5),
    "own loss": (f"{TORCH}:mean_entropy", {"name": "accuracy", "threshold": -0.1}, -0.1),
}


@pytest.mark.parametrize(("loss", "metric", "edge"), MULTILABEL.values(), ids=MULTILABEL)
def test_accuracy_of_a_model_with_several_labels_per_sample_is_that_of_all_labels(loss, metric, edge):
    y = rng.integers(0, 2, (20, 10)).astype("f")
    if loss == "soft_margin_loss":
        y = 2 * y - 1
    metrics = [Component.model_validate({"name": metric} if isinstance(metric, str) else metric)]
    build = "build_probabilities" if loss == "binary_cross_entropy" else "build_classes"
    model = make_model(model_settings(f"{TORCH}:{build}", loss=loss, metrics=metrics, seed=1), Example((X,), (y,)))
    (output,) = model.predict((X,))
    found = model.metrics(model.evaluate((X,), (y,)))
    assert found["accuracy"] == pytest.approx(np.mean((output > edge) == (y > 0.5)))


@pytest.mark.parametrize("n_kept", [10, 0])
def test_accuracy_is_that_of_the_labels_that_the_loss_does_not_ignore(n_kept):
    labels = np.where(np.arange(20) < n_kept, CLASSES, -100)
    settings = model_settings(f"{TORCH}:build_classes", loss="cross_entropy", metrics=["accuracy"], seed=1)
    model = make_model(settings, Example((X,), (CLASSES,)))
    (output,) = model.predict((X,))
    is_correct = output.argmax(1) == CLASSES
    sums = model.evaluate((X[:8],), (labels[:8],)) + model.evaluate((X[8:],), (labels[8:],))
    expected = is_correct[:n_kept].mean() if n_kept else np.nan
    assert model.metrics(sums)["accuracy"] == pytest.approx(expected, nan_ok=True)


@needs("torchmetrics")
def test_metric_of_torchmetrics_for_several_labels_per_sample_needs_no_arguments():
    y = rng.integers(0, 2, (20, 10))
    settings = model_settings(
        f"{TORCH}:build_classes", loss="binary_cross_entropy_with_logits", metrics=["Recall"], seed=1
    )
    model = make_model(settings, Example((X,), (y,)))
    (output,) = model.predict((X,))
    recall = np.sum((output > 0) * y) / np.sum(y)
    assert model.metrics(model.evaluate((X,), (y,)))["Recall"] == pytest.approx(recall, rel=1e-5)


@needs("torchmetrics")
def test_metric_may_return_a_number_of_python():
    settings = model_settings(f"{TORCH}:build_regression", loss="mse", metrics=[f"{TORCHMETRICS}:MeanOutput"], seed=1)
    x = rng.normal(size=(20, 3)).astype("f")
    model = make_model(settings, Example((x,), (x[:, 0],)))
    (output,) = model.predict((x,))
    assert model.metrics(model.evaluate((x,), (x[:, 0],)))["MeanOutput"] == pytest.approx(output.mean(), rel=1e-5)


def test_accuracy_refuses_class_numbers_of_which_each_would_be_compared_with_several_outputs():
    settings = model_settings(f"{TORCH}:build_classes", loss=f"{TORCH}:loss", metrics=["accuracy"])
    make_model(settings, Example((X,), (CLASSES[:, None],)))
    with pytest.raises(ModelError, match=r"expected labels of shape \(\) per sample.*found \(20,\)"):
        make_model(settings, Example((X,), (np.tile(CLASSES, (20, 1)),)))


@needs("torchmetrics")
@pytest.mark.parametrize("n", [20, 1], ids=["many samples", "one sample"])
def test_metric_that_needs_several_samples_is_computed_from_those_that_there_are(n):
    x, y = rng.normal(size=(20, 3)).astype("f"), rng.normal(size=20).astype("f")
    settings = model_settings(f"{TORCH}:build_regression", loss="mse", metrics=["R2Score"], seed=1)
    model = make_model(settings, Example((x[:n],), (y[:n],)))
    assert model.metric_names == ["loss", "R2Score"]
    (output,) = model.predict((x,))
    expected = 1 - np.sum((output[:, 0] - y) ** 2) / np.sum((y - y.mean()) ** 2)
    assert model.metrics(model.evaluate((x,), (y,)))["R2Score"] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ConfigurationError, match=r"R2Score.*Needs at least two samples"):
        model.metrics(model.evaluate((x[:1],), (y[:1],)))


SEVERAL = {
    "one per class": ({"name": "F1Score", "average": "none"}, "gives 10 values, expected one number"),
    "matrix": ({"name": "ConfusionMatrix"}, "gives 100 values, expected one number"),
    "curve": ({"name": "ROC"}, "gives a tuple, expected one number"),
}


@needs("torchmetrics")
@pytest.mark.parametrize(("metric", "said"), SEVERAL.values(), ids=SEVERAL)
def test_metric_that_is_not_one_number_is_refused(metric, said):
    metrics = [Component.model_validate(metric)]
    settings = model_settings(f"{TORCH}:build_classes", loss="cross_entropy", metrics=metrics)
    with pytest.raises(ConfigurationError, match=f"the metric {metric['name']} {said}"):
        make_model(settings, Example((X,), (CLASSES,)))


@pytest.mark.parametrize("others", [[], ["mae"]], ids=["alone", "beside mae"])
def test_own_metric_receives_what_an_own_loss_receives_whatever_other_metrics_there_are(others):
    own = f"{TORCH}:energy_error"
    settings = model_settings(f"{TORCH}:build_named", loss=own, metrics=[*others, own], seed=1)
    x, y = rng.normal(size=(20, 3)).astype("f"), rng.normal(size=20).astype("f")
    model = make_model(settings, Example((x,), (y,)))
    found = model.metrics(model.evaluate((x,), (y,)))
    assert found["energy_error"] == pytest.approx(found["loss"])
    assert list(found) == ["loss", *[f"energy_{name}" for name in others], "energy_error"]
    if others:
        (output,) = model.predict((x,))
        assert found["energy_mae"] == pytest.approx(np.abs(output[:, 0] - y).mean())


def test_own_loss_and_own_metric_take_more_labels_than_there_are_outputs():
    own = f"{TORCH}:error_of_sum"
    settings = model_settings(f"{TORCH}:build_regression", loss=own, metrics=[own], seed=1)
    x, y = rng.normal(size=(20, 3)).astype("f"), list(rng.normal(size=(2, 20)).astype("f"))
    model = make_model(settings, Example((x,), y))
    found, (output,) = model.metrics(model.evaluate((x,), y)), model.predict((x,))
    assert found["error_of_sum"] == pytest.approx(np.mean((output[:, 0] - y[0] - y[1]) ** 2), rel=1e-5)
    with pytest.raises(ModelError, match="the model has 1 output, the data have labels for 2"):
        make_model(model_settings(f"{TORCH}:build_regression", loss=own, metrics=[own, "mae"]), Example((x,), y))


def test_loss_of_more_outputs_than_the_model_has_names_shapes_and_the_line_of_the_loss():
    settings = model_settings(f"{TORCH}:build_regression", loss=f"{TORCH}:error_of_two")
    example = Example((np.ones((8, 3), "f"),), (np.ones((8, 1), "f"),))
    with pytest.raises(ModelError, match="do not fit together: too many values to unpack") as refused:
        make_model(settings, example)
    assert refused.value.cure.startswith("change the model (outputs of shape (1,) per sample), the labels ((1,))")
    assert re.search(r"\(raised in torch_models_for_tests\.py, line \d+\)$", refused.value.cure)


@pytest.mark.parametrize(
    ("name", "arguments"), [("CrossEntropyLoss", {"label_smoothing": 0.1}), ("MultiMarginLoss", {"margin": 0.5})]
)
def test_losses_have_the_names_of_their_classes_too(name, arguments):
    import torch

    settings = model_settings(f"{TORCH}:build_classes", {"classes": 3}, loss={"name": name} | arguments)
    x, y = rng.normal(size=(8, 64)).astype("f"), rng.integers(0, 3, 8)
    model = make_model(settings, Example((x,), (y,)))
    (output,) = model.predict((x,))
    expected = getattr(torch.nn, name)(**arguments)(torch.from_numpy(output), torch.from_numpy(y))
    assert model.metrics(model.evaluate((x,), (y,)))["loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["Linear", "Module", "CrossEntropy"])
def test_other_names_of_torch_are_no_losses(name):
    settings = model_settings(f"{TORCH}:build_classes", {"classes": 3}, loss=name)
    with pytest.raises(ConfigurationError, match=f"PyTorch has no loss {name}"):
        make_model(settings, Example((np.ones((8, 64), "f"),), (np.zeros(8, int),)))


def test_outputs_in_float32_keep_their_types():
    """The user's loss receives what the model returns, also in mixed precision."""
    from torch import bfloat16, float32, ones

    from mpi_learn.models.torch_.inputs import in_float32

    class WithLogits(dict):
        logits = property(lambda self: self["logits"])

    half, whole = ones(2, dtype=bfloat16), ones(2, dtype=int)
    for outputs in ((half, whole), [half, whole], {"a": half, "b": whole}, WithLogits(logits=half)):
        converted = in_float32(outputs)
        assert type(converted) is type(outputs)
    assert converted.logits.dtype is float32
    assert outputs.logits.dtype is bfloat16
    assert [one.dtype for one in in_float32((half, whole))] == [float32, whole.dtype]
