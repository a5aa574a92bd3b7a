"""The model of learning curves, against dense linear algebra and simulated trials."""

import numpy as np
import pytest
from scipy.stats import t

from mpi_opt.strategies.surrogates.curve_model import CATEGORY_DISTANCE, DEGREES, CurveModel, curve_features

IS_CATEGORY = np.array([False, True, False])


def simulated(n, seed, noise=0.05):
    """Rows, features at some step and final costs of trials; the category decides how a curve continues."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.random(n), rng.integers(0, 2, n), rng.random(n)])
    costs = (rows[:, 0] - 0.3) ** 2 + 0.2 * rows[:, 2] + 0.1
    now = costs + 0.3 * rows[:, 1] + noise * rng.standard_normal(n)
    return rows, np.column_stack([now, now + 0.5]), costs


def covariance(left, right, amplitude):
    """From the definition: rows and standardised features of two trials."""
    distances = [((a - b) / (0.3 * 3**0.5)) ** 2 for a, b in zip(left[0][[0, 2]], right[0][[0, 2]], strict=True)]
    distances += [CATEGORY_DISTANCE / 3 * (left[0][1] != right[0][1])]
    distances += [((a - b) / 3.0) ** 2 for a, b in zip(left[1], right[1], strict=True)]
    r = (5.0 * sum(distances)) ** 0.5
    return 1.0 + left[1] @ right[1] + amplitude * (1.0 + r + r * r / 3.0) * np.exp(-r)


def scaled(values, reference):
    return np.arcsinh((values - min(reference)) / (np.median(reference) - min(reference)) / 0.3)


def predicted(trials, y, new, amplitude, noise):
    """The mean and the standard deviation of a new cost, standardised."""
    matrix = np.array([[covariance(one, other, amplitude) for other in trials] for one in trials])
    to_new = np.array([covariance(one, new, amplitude) for one in trials])
    solved = np.linalg.solve(matrix + noise * np.eye(len(trials)), np.column_stack([y, to_new]))
    variance = covariance(new, new, amplitude) + noise - to_new @ solved[:, 1]
    return to_new @ solved[:, 0], variance**0.5


def test_probabilities_are_those_of_a_gaussian_process():
    rows, curves, costs = simulated(25, 1)
    model = CurveModel(rows[:20], curves[:20], costs[:20], IS_CATEGORY)
    now, half = (scaled(curves[:, index], curves[:20, index]) for index in (0, 1))
    raw = np.column_stack([now, now - half])
    features = (raw - raw[:20].mean(axis=0)) / (raw[:20].std(axis=0) + 1e-9)
    z = scaled(costs[:20], costs[:20])
    y = (z - z.mean()) / z.std()
    trials = list(zip(rows, features, strict=True))
    amplitude, noise = model._amplitude, model._noise
    left_out = [
        predicted(trials[:i] + trials[i + 1 : 20], np.delete(y, i), trials[i], amplitude, noise) for i in range(20)
    ]
    widening = max(1.0, np.mean([((y[i] - mean) / std) ** 2 for i, (mean, std) in enumerate(left_out)]) ** 0.5)
    widening *= (20 / 16) ** 0.5
    for index in range(20, 25):
        mean, std = predicted(trials[:20], y, trials[index], amplitude, noise)
        expected = t.cdf((y.min() - mean) / (std * widening), DEGREES)
        assert model.probability(rows[index], tuple(curves[index])) == pytest.approx(expected, rel=1e-4)
    best = np.argsort(z)[:3]
    expected = [t.cdf((np.delete(y, i).min() - left_out[i][0]) / (left_out[i][1] * widening), DEGREES) for i in best]
    assert model.least_of_best(3) == pytest.approx(min(expected), rel=1e-4)


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5])
def test_as_many_trials_become_the_best_as_predicted(noise):
    """Better than the best of twelve, so that it happens often enough."""
    predicted_, found = [], []
    for seed in range(30):
        rows, curves, costs = simulated(42, seed, noise)
        model = CurveModel(rows[:12], curves[:12], costs[:12], IS_CATEGORY)
        predicted_ += [model.probability(rows[i], tuple(curves[i])) for i in range(12, 42)]
        found += list(costs[12:] < costs[:12].min())
    order = np.argsort(predicted_)
    likely, unlikely = order[-90:], order[:450]
    assert 0.6 < np.sum(found) / np.sum(predicted_) < 1.5
    assert np.mean(np.array(found)[unlikely]) < 0.03
    assert np.mean(np.array(found)[likely]) > 2 * np.mean(found)


def test_features_are_levels_now_and_at_half_and_always_finite():
    assert curve_features([5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 0.5, 0.7]) == (pytest.approx(0.6), 2.0)
    assert curve_features([7.0]) == (7.0, 7.0)
    assert np.isfinite(curve_features([np.inf, np.inf, -np.inf])).all()
