"""One value to minimise from several: the augmented Tchebycheff function with random weights (Knowles, ParEGO, 2006).

Every point of the Pareto front has the least value for some weights, also where the front is not convex, but for those
that give up twenty times as much of one value as they gain of another. A strategy that knows single numbers only finds
the front by drawing other weights for each proposal.
"""

from __future__ import annotations

import numpy as np

from mpi_opt.core.pareto import ranks

AUGMENTATION = 0.05
"""The weight of the sum beside the largest term, as in ParEGO: among equal largest terms the smaller sum is better."""


def drawn_weights(n_values: int, seed: int, number: int) -> np.ndarray:
    """Weights of proposal `number`, evenly distributed on the simplex: shape (n_values,), with the sum 1."""
    return np.random.default_rng([seed, number, n_values]).dirichlet(np.ones(n_values))


def scalarised(values: np.ndarray, variances: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """max(w y) + 0.05 Σ w y, where y is measured from the least of each value in units of the front's extent.

    Args:
        values: Shape (n, n_values), to minimise; a row of NaN for a failed trial.
        variances: Shape (n, n_values): how well each is known.
        weights: Shape (n_values,).

    Returns:
        The values, NaN for failed trials, and their variances: those of the largest terms; both shape (n,).
    """
    low, extent = _scale(values[np.isfinite(values).all(axis=1)])
    terms = weights * (values - low) / extent
    largest = np.where(np.isfinite(terms), terms, -np.inf).argmax(axis=1)
    each = np.arange(len(values))
    slope = (1.0 + AUGMENTATION) * (weights / extent)[largest]
    return terms.max(axis=1, initial=-np.inf) + AUGMENTATION * terms.sum(axis=1), variances[each, largest] * slope**2


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least of each value, and how far the front reaches above it; where it has no extent, all values do."""
    low = values.min(axis=0)
    extent = values[ranks(values) == 0].max(axis=0) - low
    extent = np.where(extent > 0, extent, np.median(values, axis=0) - low)
    return low, np.where(extent > 0, extent, 1.0)
