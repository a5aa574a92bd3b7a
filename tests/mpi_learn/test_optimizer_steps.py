"""The parts that all optimizers share: schedules of the rate, scaling and clipping."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import OptimizerConfiguration, Schedule, Sgd
from mpi_learn.optimizers.learning_rate import LearningRate
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.training.ranks.shards import speeds

LAYOUT = FlatLayout(((2,),))


def sgd(rate=None, **values):
    options = TypeAdapter(OptimizerConfiguration).validate_python({"name": "sgd", "learning_rate": 1.0} | values)
    return make_optimizer(options, LAYOUT, rate)


def stepped(optimizer, gradient, scale=1.0, n_steps=1):
    weights = np.zeros(2, np.float32)
    for _ in range(n_steps):
        optimizer.update(weights, np.array(gradient, np.float32), scale)
    return weights


def test_the_first_step_uses_the_rate_of_step_0():
    rates = (0.5, 0.25, 0.125)
    np.testing.assert_allclose(stepped(sgd(rates.__getitem__), [1.0, 2.0], n_steps=2), [-0.75, -1.5])


@pytest.mark.parametrize(
    ("option", "expected"),
    [({"clip_norm": 2.0}, [-0.3, -0.4]), ({"clip_norm": 0.25}, [-0.15, -0.2]), ({"clip_value": 0.35}, [-0.3, -0.35])],
)
def test_a_gradient_is_scaled_once_before_it_is_clipped(option, expected):
    np.testing.assert_allclose(stepped(sgd(**option), [3.0, 4.0], scale=0.1), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("option", "expected"),
    [({"clip_norm": 2.0}, [0.3, 0.4]), ({"clip_norm": 0.25}, [0.15, 0.2]), ({"clip_value": 0.35}, [0.3, 0.35])],
)
def test_a_gradient_is_clipped_if_the_total_weight_of_a_step_is_negative(option, expected):
    """Events of a simulation may have negative weights."""
    np.testing.assert_allclose(stepped(sgd(**option), [3.0, 4.0], scale=-0.1), expected, rtol=1e-6)


@pytest.mark.parametrize("has_optimizer", [True, False])
def test_callbacks_read_the_rate_of_the_first_step_of_an_epoch(has_optimizer):
    """Also during the warm-up, and on a rank whose gradients another one applies."""
    options = Sgd(learning_rate=0.5, schedule=Schedule(warmup_epochs=5))
    n_steps = 7 if has_optimizer else 100
    rate = LearningRate(options, 10, n_workers=1, history=dict, delay=0, also_fixed_by="", n_steps=n_steps)
    if has_optimizer:
        rate.per_step(0.25, Schedule(), 3, is_settable=False)
        rate.per_step(0.5, options.schedule, 100, is_settable=True)
        rate.per_step(0.25, Schedule(), 3, is_settable=False)
    assert [rate.at_start_of(epoch) for epoch in (0, 1, 4, 5, 9)] == pytest.approx([0.001, 0.101, 0.401, 0.5, 0.5])


def settable(**options):
    """A rate that callbacks can set, and the rate of each step."""
    options = Sgd(learning_rate=0.5, **options)
    rate = LearningRate(options, 10, n_workers=1, history=dict, delay=0, also_fixed_by="", n_steps=10)
    return rate, rate.per_step(0.5, options.schedule, 10, is_settable=True)


@pytest.mark.parametrize("chosen", [0.0, 0.25, 0.5])
def test_the_rate_that_a_callback_sets_is_used_also_if_it_is_zero(chosen):
    rate, per_step = settable()
    assert (per_step(0), rate.at_start_of(0)) == (0.5, 0.5)
    rate.choose(chosen)
    assert (per_step(3), per_step(99), rate.at_start_of(4)) == (chosen, chosen, chosen)


def test_callbacks_cannot_set_a_rate_that_a_schedule_or_a_warm_up_determines():
    reason = "optimizer.schedule determines it"
    assert settable()[0].fixed_by == ""
    assert settable(schedule=Schedule(name="cosine"))[0].fixed_by == reason
    assert settable(schedule=Schedule(warmup_epochs=2))[0].fixed_by == reason


@pytest.mark.parametrize(("delay", "rates"), [(0, [0.5, 0.5, 0.05, 0.005]), (1, [0.5, 0.5, 0.5, 0.05])])
def test_a_rate_that_waits_for_a_validation_in_a_thread_is_an_epoch_late(delay, rates):
    """The loss does not improve after its first epoch. No epoch sees values of itself or of later ones."""
    options = Sgd(learning_rate=0.5, schedule=Schedule(name="plateau", metric="loss", factor=0.1, patience=1))
    history = {"loss": [1.0] * 4}
    rate = LearningRate(options, 4, n_workers=1, history=lambda: history, delay=delay, also_fixed_by="", n_steps=10)
    per_step = rate.per_step(0.5, options.schedule, 10, is_settable=True)
    found = []
    for epoch in range(4):
        rate.begin_epoch(epoch)
        found.append(per_step(10 * epoch))
        assert rate.at_start_of(epoch) == found[-1]
    assert found == pytest.approx(rates)


def test_a_rank_without_a_measured_speed_counts_as_a_typical_one():
    measured = [(100, 2.0), (30, 0.0), (0, 1.0), (90, 1.0), (300, 1.0)]
    assert speeds(measured) == [50.0, 90.0, 90.0, 90.0, 300.0]
    assert speeds([(0, 0.0), (0, 1.0)]) == [1.0, 1.0]
