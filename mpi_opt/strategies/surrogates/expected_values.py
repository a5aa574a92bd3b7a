"""The expected values of trials: of many noisy values, the smallest is mostly a lucky one.

A Gaussian process of all values predicts, for each point that was tried, the mean over repetitions. Without noise,
these means are the values themselves. The likelihood decides whether there is noise: values that differ at points close
together, or in repetitions of one point, cannot be described without it. It can be mistaken where a function varies
faster than the distances between the trials near its minimum; then a value of the noise's size is at stake.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np
from threadpoolctl import ThreadpoolController

from mpi_opt.core.arrays import Bools
from mpi_opt.core.figures import Measured
from mpi_opt.core.limits import MIN_VALUES_WITH_NOISE
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.thinning import thinned
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.surrogates.extremes import without_extremes
from mpi_opt.strategies.surrogates.fitting import Observations, chosen_settings, posterior
from mpi_opt.strategies.surrogates.warp import unwarped

MIN_VALUES_PER_DIMENSION = 2
"""Fewest values per hyperparameter from which noise is distinguished from the shape of the function."""
MIN_EVIDENCE = 2.0
"""The least logarithm of the ratio of the densities with and without noise with which values count as noisy."""
NOT_NOISY = 1e-6
"""The largest variance of the noise, in units of that of the function, with which values count as free of noise."""
N_FITTED, N_MODELLED, N_READ = 150, 300, 5000
"""Largest numbers of values from which the noise is fitted, in the model, and of which the model is chosen."""


@final
class ExpectedValues:
    """The expected values at the points of trials, by a model of all their values.

    Args:
        space: The search space.
        points: The hyperparameters of the trials; a point may occur several times.
        costs: Their finite values, to be minimised; a `Measured` may have an uncertainty.

    Attributes:
        are_noisy: Whether the values have noise; False with too few values to know.
        means: Shape (n,): the expected values, infinite for values that the model leaves out, such as penalties.
        stds: Shape (n,): the standard deviations of `means`.
    """

    def __init__(self, space: Space, points: Sequence[Parameters], costs: Sequence[float]) -> None:
        n = len(costs)
        self.are_noisy, self.means, self.stds = False, np.full(n, math.inf), np.zeros(n)
        values = without_extremes(np.array(costs, dtype=float)[:, None])[:, 0] if n else np.zeros(0)
        finite = np.flatnonzero(np.isfinite(values))
        kept: list[int] = sorted(thinned(finite[np.argsort(values[finite], kind="stable")].tolist(), N_READ))
        if len(kept) < max(MIN_VALUES_WITH_NOISE, MIN_VALUES_PER_DIMENSION * len(space)):
            return
        if values[kept].min() == values[kept].max():
            return
        encoding = Encoding(space)
        self._rows = encoding.rows(points[index] for index in kept)
        exponent = int(np.frexp(np.abs(values[kept]).max())[1])
        variances = np.array([_variance(costs[index], exponent) for index in kept])
        observed = Observations(self._rows, np.ldexp(values[kept], -exponent), variances)
        with ThreadpoolController().limit(limits=1):  # threads cost more than they save with so small matrices
            self._fit(observed, kept, exponent, encoding.is_category)

    def _fit(self, observed: Observations, kept: list[int], exponent: int, is_category: Bools) -> None:
        """Decides whether the values have noise, and computes the expected values of the trials `kept`."""
        fitted, variances = observed.spread(N_FITTED), observed.variances
        density, settings = chosen_settings(fitted, is_category)
        without_noise, _ = chosen_settings(fitted, is_category, largest_noise=NOT_NOISY)
        self.are_noisy = bool(np.mean(variances > 0) > 0.5) or without_noise - density > MIN_EVIDENCE
        self._model = posterior(modelled := observed.spread(N_MODELLED), is_category, settings)
        if len(modelled.values) < len(observed.values):  # the values that are lucky must not choose themselves
            order = np.argsort(self._model.predict(self._rows)[0], kind="stable")
            modelled = observed.at(np.sort(thinned(order.tolist(), N_MODELLED)))
            self._model = posterior(modelled, is_category, settings)
        mean, std = self._model.predict(self._rows)
        ends = (unwarped(mean + shift * std, modelled.values, settings.offset) for shift in (0.0, -1.0, 1.0))
        with np.errstate(over="ignore"):  # values near the largest float
            middle, low, high = (np.ldexp(end, exponent) for end in ends)
            self.means[kept], self.stds[kept] = middle, 0.5 * high - 0.5 * low


def _variance(cost: float, exponent: int) -> float:
    """The known variance of a value in units of 2^`exponent`; 0 if it is not known."""
    known = cost.uncertainty if isinstance(cost, Measured) else None
    return 0.0 if known is None or not math.isfinite(known) else min(math.ldexp(known, -exponent), 1e100) ** 2
