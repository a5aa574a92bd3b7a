"""Every optimizer against an independent implementation."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from pydantic import TypeAdapter

from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.optimizers.configuration import OptimizerConfiguration, Schedule
from mpi_learn.optimizers.learning_rate import ScheduledRate
from mpi_learn.optimizers.optimizer import RULES, make_optimizer
from mpi_learn.optimizers.wrapped_optimizers import SeparateOptimizers
from tests.optional_packages import needs

SHAPES = ((7, 5), (5,), (5, 3), (3,))
LAYOUT = FlatLayout(SHAPES)


def options(**values):
    return TypeAdapter(OptimizerConfiguration).validate_python(values)


def gradients(n=8, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=LAYOUT.size) * 10.0 ** rng.integers(-3, 2)).astype(np.float32) for _ in range(n)]


def start():
    return np.random.default_rng(1).normal(size=LAYOUT.size).astype(np.float32)


def after(optimizer, scale=1.0):
    weights = aligned_empty(LAYOUT.size)
    weights[:] = start()
    for gradient in gradients():
        optimizer.update(weights, gradient, scale)
    return weights


def assert_moves_as(weights, expected):
    """Compares the movements from `start()`, of which a tolerance relative to the weights would be a large part."""
    moved = expected - start()
    np.testing.assert_allclose(weights - start(), moved, rtol=2e-3, atol=2e-3 * np.abs(moved).max())


def by_keras(name, **values):
    import keras

    optimizer = getattr(keras.optimizers, name)(**values)
    variables = [keras.Variable(view) for view in LAYOUT.views(start())]
    for gradient in gradients():
        optimizer.apply([keras.ops.convert_to_tensor(view) for view in LAYOUT.views(gradient)], variables)
    return np.concatenate([np.asarray(variable).ravel() for variable in variables])


KERAS = [
    ("SGD", {"name": "sgd"}, {}),
    ("SGD", {"name": "sgd", "momentum": 0.9, "learning_rate": 0.1}, {}),
    ("SGD", {"name": "sgd", "momentum": 0.9, "nesterov": True}, {}),
    ("Adam", {"name": "adam"}, {}),
    ("Adam", {"name": "adam", "beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3}, {}),
    ("AdamW", {"name": "adamw", "weight_decay": 0.5}, {"weight_decay": 0.5}),
    ("RMSprop", {"name": "rmsprop"}, {}),
    ("RMSprop", {"name": "rmsprop", "rho": 0.7, "momentum": 0.8, "centered": True}, {}),
    ("RMSprop", {"name": "rmsprop", "centered": True}, {}),
    ("Adadelta", {"name": "adadelta", "learning_rate": 0.5}, {}),
    ("Adadelta", {"name": "adadelta", "learning_rate": 0.5, "rho": 0.7}, {}),
    ("Adagrad", {"name": "adagrad"}, {}),
    ("Adagrad", {"name": "adagrad", "initial_accumulator_value": 0.5}, {}),
    ("Lamb", {"name": "lamb"}, {}),
    ("Adam", {"name": "adam", "clip_value": 0.5}, {"clipvalue": 0.5}),
    ("SGD", {"name": "sgd", "clip_norm": 0.5}, {"global_clipnorm": 0.5}),
    ("SGD", {"name": "sgd", "weight_decay": 0.01}, {"weight_decay": 0.01}),
]


@needs("keras")
@pytest.mark.parametrize(("keras_name", "ours", "theirs"), KERAS, ids=lambda value: str(value))
def test_optimizer_steps_as_keras_does(keras_name, ours, theirs):
    known = {
        key: value for key, value in ours.items() if key not in ("name", "clip_value", "clip_norm", "weight_decay")
    }
    assert_moves_as(after(make_optimizer(options(**ours), LAYOUT)), by_keras(keras_name, **known, **theirs))


USED = [(True, True, False, True), (False, True, False, True), (True, True, False, False), (True, True, False, True)]
"""The arrays that have a gradient in each of some steps. The third one never has; the first two differ in number."""


@needs("torch")
@pytest.mark.parametrize(
    ("name", "options_of_torch"),
    [("AdamW", {}), ("SGD", {"momentum": 0.9, "weight_decay": 0.0})],
    ids=["adamw", "sgd"],
)
def test_array_without_a_gradient_rests_as_in_pytorch(name, options_of_torch):
    import torch

    common = {"weight_decay": 0.1} | options_of_torch
    ours = make_optimizer(options(name=name.lower(), learning_rate=0.05, **common), LAYOUT.with_counts())
    weights = np.concatenate([start(), np.zeros(len(SHAPES), np.float32)])
    parameters = [torch.nn.Parameter(torch.from_numpy(view.copy())) for view in LAYOUT.views(start())]
    eps = {"eps": 1e-7} if name == "AdamW" else {}
    theirs = getattr(torch.optim, name)(parameters, lr=0.05, **common, **eps)
    for gradient, used in zip(gradients(len(USED)), USED, strict=True):
        views = LAYOUT.views(gradient)
        for view, parameter, is_used in zip(views, parameters, used, strict=True):
            parameter.grad = torch.from_numpy(view.copy()) if is_used else None
            view *= is_used
        theirs.step()
        ours.update(weights, np.concatenate([gradient, 3 * np.array(used, np.float32)]))
    expected = np.concatenate([one.detach().numpy().ravel() for one in parameters])
    np.testing.assert_allclose(weights[: LAYOUT.size], expected, rtol=1e-5, atol=1e-6)
    assert not weights[LAYOUT.size :].any()
    (n_steps,) = (array for key, array in ours.arrays().items() if key.endswith("n_steps_of_arrays"))
    assert n_steps.tolist() == np.sum(USED, 0).tolist()


def test_optimizer_that_has_made_a_step_continues_from_a_checkpoint():
    expected, resumed = (make_optimizer(options(name="adam"), LAYOUT.with_counts()) for _ in range(2))
    steps = [np.concatenate([one, np.array(used, np.float32)]) for one, used in zip(gradients(4), USED, strict=True)]
    weights = np.concatenate([start(), np.zeros(len(SHAPES), np.float32)])
    resumed.update(weights.copy(), steps[3])
    for step in steps[:3]:
        expected.update(weights, step)
    for name, array in resumed.arrays().items():
        array[...] = expected.arrays()[name]
    copy = weights.copy()
    resumed.update(copy, steps[3])  # with the arrays of its last step, whose numbers of steps are different now
    expected.update(weights, steps[3])
    np.testing.assert_array_equal(copy, weights)


@pytest.mark.parametrize("scale", [1.0, -0.5], ids=["positive", "negative total weight"])
def test_lars_follows_its_equations(scale):
    rate, momentum, decay, trust, epsilon = 0.1, 0.9, 0.01, 0.001, 1e-8
    weights = [view.astype(np.float64) for view in LAYOUT.views(start())]
    velocity = [np.zeros_like(view) for view in weights]
    for gradient in gradients():
        for i, g in enumerate(LAYOUT.views(scale * gradient.astype(np.float64))):
            w_norm, g_norm = np.linalg.norm(weights[i]), np.linalg.norm(g)
            is_matrix = g.ndim > 1
            local = trust * w_norm / (g_norm + decay * w_norm + epsilon) if is_matrix else 1.0
            velocity[i] = momentum * velocity[i] + rate * local * (g + decay * weights[i] * is_matrix)
            weights[i] = weights[i] - velocity[i]
    expected = np.concatenate([view.ravel() for view in weights])
    ours = after(make_optimizer(options(name="lars", weight_decay=decay), LAYOUT), scale)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_optimizer_continues_from_saved_arrays_exactly(name):
    whole = make_optimizer(options(name=name), LAYOUT)
    expected = after(whole)
    first, second = make_optimizer(options(name=name), LAYOUT), make_optimizer(options(name=name), LAYOUT)
    weights = start()
    for gradient in gradients()[:3]:
        first.update(weights, gradient)
    for key, array in second.arrays().items():
        array[...] = first.arrays()[key]
    for gradient in gradients()[3:]:
        second.update(weights, gradient)
    np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize(
    ("given", "n_vectors"),
    [
        ({"name": "sgd"}, 0),
        ({"name": "sgd", "momentum": 0.9}, 1),
        ({"name": "rmsprop"}, 1),
        ({"name": "rmsprop", "centered": True}, 3),
        ({"name": "adam"}, 2),
    ],
    ids=str,
)
def test_an_optimizer_keeps_only_vectors_that_its_options_need(given, n_vectors):
    arrays = make_optimizer(options(**given), LAYOUT).arrays().values()
    assert sum(array.size == LAYOUT.size for array in arrays) == n_vectors


def test_a_step_needs_no_second_copy_of_the_state():
    layout = FlatLayout(((1000, 1000),)).with_counts()
    optimizer, small = (make_optimizer(options(name="adam"), one) for one in (layout, LAYOUT.with_counts()))
    small.update(*np.ones((2, LAYOUT.size + len(SHAPES)), np.float32))  # compiles the loops
    weights, gradient = np.ones((2, layout.size), np.float32)
    tracemalloc.start()
    try:
        optimizer.update(weights, gradient)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1e6


@pytest.mark.parametrize("name", RULES)
def test_scale_is_the_same_as_a_scaled_gradient(name):
    scaled = make_optimizer(options(name=name), LAYOUT)
    plain = make_optimizer(options(name=name), LAYOUT)
    weights, other = start(), start()
    for gradient in gradients():
        before = gradient.copy()
        scaled.update(weights, gradient, 0.25)
        np.testing.assert_array_equal(gradient, before)
        plain.update(other, gradient * np.float32(0.25))
    np.testing.assert_allclose(weights, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_optimizer_finds_the_bottom_of_a_bowl(name):
    rates = {"adadelta": 1.0, "adagrad": 0.5, "lars": 5.0}
    layout = FlatLayout(((10, 2),))
    optimizer = make_optimizer(options(name=name, learning_rate=rates.get(name, 0.05)), layout)
    weights = np.full(20, 2.0, np.float32)
    first = float((weights**2).sum())
    for _ in range(300):
        optimizer.update(weights, weights.copy())
    assert float((weights**2).sum()) < 0.75 * first


def test_rate_warms_up_then_falls_as_a_cosine():
    rate = ScheduledRate(0.1, Schedule(name="cosine", warmup_epochs=1, floor=0.1), steps_per_epoch=10, epochs=5)
    rates = [rate(step) for step in range(50)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[9] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(0.1)
    assert rates[30] == pytest.approx(0.1 * (0.1 + 0.9 * 0.5))
    assert rates[-1] < 0.012
    assert rate(70) == pytest.approx(0.01), "it does not rise again in further epochs"


def test_rate_drops_in_steps():
    rate = ScheduledRate(1.0, Schedule(name="step", every=2, factor=0.5), steps_per_epoch=4, epochs=6)
    assert [rate(epoch * 4) for epoch in range(6)] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_rate_scales_with_the_number_of_workers():
    assert ScheduledRate(0.1, Schedule(scale="linear"), n_workers=8)(0) == pytest.approx(0.8)
    assert ScheduledRate(0.1, Schedule(scale="sqrt"), n_workers=4)(0) == pytest.approx(0.2)


def by_lamb(decay):
    """Algorithm 2 of You et al. 2020 (arXiv:1904.00962), in float64."""
    rate, beta_1, beta_2, epsilon = 0.001, 0.9, 0.999, 1e-7
    weights = [view.astype(np.float64) for view in LAYOUT.views(start())]
    m, v = ([np.zeros_like(view) for view in weights] for _ in range(2))
    for t, gradient in enumerate(gradients(), 1):
        for i, g in enumerate(LAYOUT.views(gradient.astype(np.float64))):
            m[i] = beta_1 * m[i] + (1 - beta_1) * g
            v[i] = beta_2 * v[i] + (1 - beta_2) * g**2
            r = m[i] / (1 - beta_1**t) / (np.sqrt(v[i] / (1 - beta_2**t)) + epsilon) + decay * weights[i]
            weights[i] = weights[i] - rate * np.linalg.norm(weights[i]) / np.linalg.norm(r) * r
    return np.concatenate([view.ravel() for view in weights])


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_lamb_follows_the_equations_of_its_paper(decay):
    """The bias corrections and the decay change the direction of a step, which a loose comparison does not show."""
    assert_moves_as(after(make_optimizer(options(name="lamb", weight_decay=decay), LAYOUT)), by_lamb(decay))


@pytest.mark.parametrize("scale", [1 / 64, 1.0])
def test_the_norm_is_clipped_after_the_gradient_is_scaled(scale):
    """A summed gradient is long, its mean may be short: only the mean is compared with the bound."""
    gradient = np.full(LAYOUT.size, 0.1, np.float32)
    mean = scale * gradient.astype(np.float64)
    expected = start() - 1.0 * mean * min(1.0, 0.3 / np.linalg.norm(mean))
    weights = start()
    make_optimizer(options(name="sgd", learning_rate=1.0, clip_norm=0.3), LAYOUT).update(weights, gradient, scale)
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1 / 64, 1.0])
def test_elements_are_clipped_after_the_gradient_is_scaled(scale):
    gradient = np.linspace(-2, 2, LAYOUT.size, dtype=np.float32)
    weights = start()
    make_optimizer(options(name="sgd", learning_rate=1.0, clip_value=0.02), LAYOUT).update(weights, gradient, scale)
    np.testing.assert_allclose(weights, start() - np.clip(scale * gradient, -0.02, 0.02), rtol=1e-5, atol=1e-6)


def test_centered_rmsprop_stays_finite_when_large_gradients_do_not_change():
    """Then the mean square and the squared mean are equal but for rounding, and their difference may be negative."""
    layout = FlatLayout(((100,),))
    optimizer = make_optimizer(options(name="rmsprop", centered=True), layout)
    weights, gradient = np.zeros(100, np.float32), np.linspace(300, 4000, 100, dtype=np.float32)
    for _ in range(1500):
        optimizer.update(weights, gradient)
    assert np.isfinite(weights).all()


def test_separate_optimizers_do_not_change_a_model_without_samples():
    """Momentum does not change its weights, and Adam does not count a step for it."""
    layout = FlatLayout(((3,), (1,), (2,), (1,)), models=(2, 2))
    made = [make_optimizer(options(name="adam", learning_rate=0.1), part) for _, part in layout.by_model()]
    both = SeparateOptimizers(layout, made)
    weights = np.zeros(7, np.float32)
    both.update(weights, np.array([8, 8, 8, 4, 1, 1, 2], np.float32))
    resting = weights[4:6].copy()
    both.update(weights, np.array([8, 8, 8, 4, 1, 1, 0], np.float32))
    alone = make_optimizer(options(name="adam", learning_rate=0.1), FlatLayout(((3,),)))
    expected = np.zeros(3, np.float32)
    for _ in range(2):
        alone.update(expected, np.array([2, 2, 2], np.float32))
    np.testing.assert_array_equal(weights[:3], expected)
    np.testing.assert_array_equal(weights[4:6], resting)
    assert weights[3] == weights[6] == 0


def test_exponential_schedule_falls_by_the_factor_every_n_epochs():
    rate = ScheduledRate(1.0, Schedule(name="exponential", every=2, factor=0.5), steps_per_epoch=10, epochs=8)
    assert [rate(step) for step in (0, 10, 20, 40)] == pytest.approx([1.0, 0.5**0.5, 0.5, 0.25])


class FakeModel:
    """What `keras.callbacks.ReduceLROnPlateau` uses of a model."""

    def __init__(self, keras, rate):
        self.optimizer = keras.optimizers.SGD(rate)


@needs("keras")
@pytest.mark.parametrize(
    ("mode", "metric", "better"),
    [("min", "val_auc", "min"), ("max", "val_loss", "max"), ("auto", "val_loss", "min"), ("auto", "val_auc", "max")],
)
def test_plateau_schedule_is_that_of_keras(mode, metric, better):
    import keras

    losses = np.concatenate([1 / np.arange(1, 12), np.full(9, 0.1), 0.1 - 5e-5 * np.arange(9), [0.05, np.nan, 0.06]])
    values = losses if better == "min" else -losses
    schedule = Schedule(name="plateau", metric=metric, mode=mode, patience=3, factor=0.3, floor=0.01)
    history = {metric: []}
    rate = ScheduledRate(2.0, schedule, history=history)
    callback = keras.callbacks.ReduceLROnPlateau(
        metric, factor=0.3, patience=3, mode=better, min_delta=1e-4, min_lr=0.02
    )
    callback.set_model(FakeModel(keras, 2.0))
    callback.on_train_begin()
    for epoch, value in enumerate(values):
        history[metric].append(float(value))
        if np.isfinite(value):
            callback.on_epoch_end(epoch, {metric: float(value)})
        assert rate(epoch) == pytest.approx(float(callback.model.optimizer.learning_rate), rel=1e-5)
    assert rate(0) == pytest.approx(0.02)
