"""The probability that a trial succeeds: a Gaussian process of labels, 1 for success and 0 for failure.

Failures have borders, such as the memory of a device, or a learning rate from which on losses are NaN. Most
hyperparameters do not matter for them. The length scales are therefore fitted, as those of the costs; a kernel with one
length scale would need failures everywhere along a border.

The best points are often at the border. A search would propose points there again and again, half of which fail. The
least margin from the border therefore grows with the part of the latest trials that have failed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

import numpy as np
import scipy  # loads its subpackages on first use

from mpi_opt.core.arrays import Bools, Floats
from mpi_opt.strategies.surrogates.fitting import Observations, anchor_size
from mpi_opt.strategies.surrogates.gaussian_process import GaussianProcess, Hyperparameters, Likelihood

LEAST_MARGIN, GAIN, MOST_MARGIN = 0.5, 16.0, 3.0
"""The least margin, in standard deviations: without recent failures; its growth with their part; its largest value."""
N_LATEST = 20
"""The number of latest trials in which failures are counted. The first `N_FIRST` are never counted: they are
space-filling, and fail whatever the model knows."""
N_FIRST = 12
MOST_EXCLUDED = 0.95
"""The largest part of the candidates that may have less than the least margin, for failures that are mere chance."""
BORDER_WIDTH = 0.3
"""A standard deviation of labels that is added to that of the model. Between a success and a failure nearby, a smooth
function knows where it is 0.5, but the border can be anywhere."""
LENGTHS, LEAST_NOISE = (0.2, 3.0), 1e-2
"""Limits of length scales and noise. Without them, a fit to a few labels describes these perfectly and others badly."""
FIRST_FIT, FIT_GROWTH, N_ITERATIONS = 8, 1.2, 25
"""Length scales are fitted again when the number of trials has grown by this factor."""
N_FITTED, N_MODELLED = 150, 300
"""Largest numbers of trials to which length scales are fitted, and in the model."""


@final
class SuccessModel:
    """Fits the model. A fit depends on the trials alone, so that it is the same in a resumed search.

    Args:
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, is_category: Bools) -> None:
        self._is_category = is_category
        self._fit: tuple[Floats, Hyperparameters] | None = None  # rows with labels, and what was fitted to them

    def fit(self, observed: Observations) -> SuccessProbability | None:
        """The model of all trials; None if none has failed, or if all have."""
        labels = np.isfinite(observed.values)
        if labels.all() or not labels.any():
            return None
        fitted = observed.first(anchor_size(len(labels), FIRST_FIT, FIT_GROWTH)).spread(N_FITTED)
        y = _standardized(fitted)
        known = np.column_stack([fitted.rows, y])
        if self._fit is None or not np.array_equal(known, self._fit[0]):
            start = Hyperparameters.default(fitted.rows.shape[1])
            found = Likelihood(fitted.rows, self._is_category).fit(y, np.zeros(len(y)), start, N_ITERATIONS)
            self._fit = known, _limited(found)
        latest = labels[N_FIRST:][-N_LATEST:]
        recent = float(np.mean(~latest)) if len(latest) else 0.0
        return SuccessProbability(observed.spread(N_MODELLED), self._is_category, self._fit[1], recent)


@final
class SuccessProbability:
    """The probability that a trial succeeds, given some that have succeeded and some that have not.

    Args:
        observed: The trials; NaN for those that have failed.
        is_category: Shape (n_dimensions,), bool.
        hyperparameters: Those of the Gaussian process of the labels.
        recent: The part of the latest trials that have failed.
    """

    def __init__(
        self, observed: Observations, is_category: Bools, hyperparameters: Hyperparameters, recent: float
    ) -> None:
        y = _standardized(observed)
        self._border, self._width = 0.5 * float(y.min() + y.max()), BORDER_WIDTH * float(np.ptp(y))
        self._least = min(LEAST_MARGIN + GAIN * recent, MOST_MARGIN)
        self._model = GaussianProcess(observed.rows, y, is_category, hyperparameters, np.zeros(len(y)))

    def log_probability(self, rows: Floats) -> Floats:
        """The logarithm of the probability at `rows` (m, n_dimensions): shape (m,)."""
        found: Floats = scipy.special.log_ndtr(self.margins(rows))
        return found

    def margins(self, rows: Floats) -> Floats:
        """The predicted label above 0.5, in standard deviations, at `rows` (m, n_dimensions): shape (m,)."""
        mean, std = self._model.predict(rows)
        margins: Floats = (mean - self._border) / np.hypot(std, self._width)
        return margins

    def least_margin(self, candidates: Floats) -> float:
        """The margin from which on points are likely to succeed; some of `candidates` (m, n_dimensions) have it."""
        return min(self._least, float(np.quantile(self.margins(candidates), MOST_EXCLUDED)))


def _limited(found: Hyperparameters) -> Hyperparameters:
    low, high = (-2.0 * math.log(length) for length in reversed(LENGTHS))
    noise = max(found.log_noise, math.log(LEAST_NOISE))
    return replace(found, log_weights=np.clip(found.log_weights, low, high), log_noise=noise)


def _standardized(observed: Observations) -> Floats:
    """The labels with mean 0 and standard deviation 1: shape (n,)."""
    labels = np.isfinite(observed.values).astype(float)
    found: Floats = (labels - labels.mean()) / (labels.std() or 1.0)
    return found
