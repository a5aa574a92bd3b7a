"""Warm start of a Gaussian process: values of an earlier study, as far as it agrees with this one.

A Gaussian process of the earlier study predicts the values at the points that this study has tried. The logarithms of
the observed values are fitted by a linear function of these predictions. The same function of the predictions at the
points of the earlier study gives values of this study, with the variance of the regression's residuals. If the
regression explains too little, nothing is added. An earlier study that misleads therefore costs only the trials at its
best points, which are proposed first.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from mpi_opt.core.arrays import Bools, Floats
from mpi_opt.strategies.surrogates.fitting import Surrogate
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess
from mpi_opt.strategies.surrogates.observations import Observations
from mpi_opt.strategies.surrogates.warp import scale_of

MIN_SHARED, MIN_EARLIER = 5, 8
"""Fewest values of this study and of the earlier one for a regression."""
MAX_ADDED_VALUES = 40
"""Largest number of values to add: the best half, and an even selection of the others."""
MIN_AGREEMENT = 0.25
"""Smallest explained part of the variance (adjusted R²) at which values are added."""
CAUTION = 4.0
"""Factor of the variance of added values, because the errors of neighbouring values are not independent."""


@final
class EarlierStudyModel:
    """The observations of an earlier study and a model of them.

    Args:
        observed: The trials of the earlier study as points of this space, none failed. Penalties are left out.
        is_known: Shape (n_dimensions,), bool: the hyperparameters that the earlier study had as well.
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, observed: Observations, is_known: Bools, is_category: Bools) -> None:
        observed = observed.without_extremes().succeeded().scaled()
        self._is_known, self._observed = is_known, observed.thinned(MAX_ADDED_VALUES)
        self._model: GaussianProcess | None = None
        if is_known.any() and len(observed.values) >= MIN_EARLIER and np.ptp(observed.values) > 0:
            part = Observations(observed.rows[:, is_known], observed.values, observed.variances)
            self._model = Surrogate(is_category[is_known]).fit(part)[0]

    def extend(self, observed: Observations) -> Observations:
        """Adds the earlier values, in units of this study, to `observed`; returns `observed` if they do not agree."""
        here = observed.succeeded()
        if self._model is None or len(here.values) < MIN_SHARED or not np.ptp(here.values) > 0:
            return observed
        low, scale = here.values.min(), scale_of(here.values)
        log_values = np.log((here.values - low) / scale + 1.0)
        predictions = self._model.predict(here.rows[:, self._is_known])[0]
        line = _line(predictions, log_values)
        if line is None:
            return observed
        slope, offset, variance = line
        predicted = offset + slope * self._model.predict(self._observed.rows[:, self._is_known])[0]
        predicted = np.clip(predicted, math.log(0.5), log_values.max())
        values = low + scale * (np.exp(predicted) - 1.0)
        variances = CAUTION * variance * (scale * np.exp(predicted)) ** 2
        return Observations(
            np.vstack([observed.rows, self._observed.rows]),
            np.append(observed.values, values),
            np.append(observed.variances, variances),
        )


def _line(x: Floats, y: Floats) -> tuple[float, float, float] | None:
    """Linear regression of `y` on `x`, both of shape (n,).

    Returns:
        Slope, offset and variance of the residuals; None if the slope is not positive or the line explains too little.
    """
    n, dx, dy = len(x), x - x.mean(), y - y.mean()
    if not (dx @ dx > 0 and dx @ dy > 0):
        return None
    slope = float(dx @ dy / (dx @ dx))
    variance = float(((dy - slope * dx) ** 2).sum() / (n - 2))
    explained = 1.0 - variance / float(dy @ dy / (n - 1))
    return (slope, float(y.mean() - slope * x.mean()), variance) if explained > MIN_AGREEMENT else None
