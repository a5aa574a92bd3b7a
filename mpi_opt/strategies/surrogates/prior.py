"""What an earlier study says about this one, as values that a Gaussian process may learn from.

A Gaussian process of the earlier study's values guesses how good the points are that were tried here. How well these
guesses agree with what came of the points decides what the earlier trials are worth: by linear regression each becomes
a value in this study's units, known as badly as the regression misses. Where the two do not agree nothing is added, so
that learning from a misleading study costs nothing beside the trials that were begun with its best points.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from mpi_opt.strategies.surrogates.fitting import Surrogate
from mpi_opt.strategies.surrogates.observations import Told
from mpi_opt.strategies.surrogates.warp import scale_of

FEWEST_SHARED, FEWEST_EARLIER = 5, 8
LARGEST = 40
"""So many values are added at most: the best half, and an even choice of the others."""
LEAST_AGREEMENT = 0.25
"""Of the variance of what came of trials, so much must be explained, beyond what chance explains, to add anything."""
CAUTION = 4.0
"""Errors of neighbouring earlier values are not independent: their variance counts so many times."""


@final
class Prior:
    """The earlier study's trials, and a model of them.

    Args:
        told: The earlier trials as points of this space (values to minimise, none failed).
        is_known: Shape (n_dimensions,), bool: the dimensions that the earlier study had, too.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, told: Told, is_known: np.ndarray, is_category: np.ndarray) -> None:
        self._is_known, self._told = is_known, told.thinned(LARGEST)
        self._model = None
        if len(told.values) >= FEWEST_EARLIER and np.ptp(told.values) > 0:
            part = Told(told.rows[:, is_known], told.values, told.variances)
            self._model = Surrogate(is_category[is_known]).fit(part)[0]

    def extend(self, told: Told) -> Told:
        """`told` and, as far as the earlier study agrees with it, the earlier values in its units."""
        here = told.succeeded()
        if self._model is None or len(here.values) < FEWEST_SHARED or not np.ptp(here.values) > 0:
            return told
        low, scale = here.values.min(), scale_of(here.values)
        heights = np.log((here.values - low) / scale + 1.0)
        guesses = self._model.predict(here.rows[:, self._is_known])[0]
        line = _line(guesses, heights)
        if line is None:
            return told
        slope, offset, variance = line
        guessed = offset + slope * self._model.predict(self._told.rows[:, self._is_known])[0]
        guessed = np.clip(guessed, math.log(0.5), heights.max())
        values = low + scale * (np.exp(guessed) - 1.0)
        variances = CAUTION * variance * (scale * np.exp(guessed)) ** 2
        return Told(
            np.vstack([told.rows, self._told.rows]),
            np.append(told.values, values),
            np.append(told.variances, variances),
        )


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float] | None:
    """Slope, offset and the variance of the residuals of a rising line; None if it explains too little."""
    n, dx, dy = len(x), x - x.mean(), y - y.mean()
    if not (dx @ dx > 0 and dx @ dy > 0):
        return None
    slope = float(dx @ dy / (dx @ dx))
    variance = float(((dy - slope * dx) ** 2).sum() / (n - 2))
    explained = 1.0 - variance / float(dy @ dy / (n - 1))
    return (slope, float(y.mean() - slope * x.mean()), variance) if explained > LEAST_AGREEMENT else None
