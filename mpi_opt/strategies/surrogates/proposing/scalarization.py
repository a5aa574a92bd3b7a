"""One value to minimise from several: the augmented Tchebycheff function with random weights.

The method is ParEGO (Knowles, IEEE Trans. Evol. Comput. 10, 2006). For some weights the function is smallest at a given
point of the Pareto front, also where the front is not convex. Exceptions are points that give up more than twenty times
as much of one value as they gain of another. A strategy for a single value therefore finds the front if it draws new
weights for each proposal.
"""

from __future__ import annotations

import numpy as np

from mpi_opt.core.arrays import Floats
from mpi_opt.core.figures_of_merit import is_on_front

AUGMENTATION = 0.05
"""The weight of the sum in addition to the largest term, as in ParEGO: with equal largest terms the smaller sum is
better."""

MIN_EXTENT = 1e-50
"""The smallest extent of a front, of values up to 1. The square of a value in units of it is finite."""


def drawn_weights(n_values: int, seed: int, number: int) -> Floats:
    """Weights of proposal `number`, uniformly distributed on the simplex: shape (n_values,), with the sum 1."""
    return np.random.default_rng([seed, number, n_values]).dirichlet(np.ones(n_values))


def scalarized(values: Floats, variances: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """max(w y) + 0.05 Σ w y, where each y is relative to its minimum, in units of the front's extent.

    Args:
        values: Shape (n, n_values), to be minimised, in (-1, 1); a row of NaN for a failed trial.
        variances: Shape (n, n_values), the variance of each value.
        weights: Shape (n_values,).

    Returns:
        The combined values, NaN for failed trials, and their variances, which are those of the largest terms; both of
        shape (n,).
    """
    low, extent = _scale(values[np.isfinite(values).all(axis=1)])
    terms = weights * (values - low) / extent
    largest = np.where(np.isfinite(terms), terms, -np.inf).argmax(axis=1)
    each = np.arange(len(values))
    slope = (1.0 + AUGMENTATION) * (weights / extent)[largest]
    return terms.max(axis=1, initial=-np.inf) + AUGMENTATION * terms.sum(axis=1), variances[each, largest] * slope**2


def _scale(values: Floats) -> tuple[Floats, Floats]:
    """The minimum of each value, and the extent of the front; where that is 0, the median minus the minimum, or 1."""
    if not len(values):  # all trials have failed
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    low = values.min(axis=0)
    extent = values[is_on_front(values)].max(axis=0) - low
    extent = np.where(extent > 0, extent, np.median(values, axis=0) - low)
    return low, np.where(extent > 0, np.maximum(extent, MIN_EXTENT), 1.0)
