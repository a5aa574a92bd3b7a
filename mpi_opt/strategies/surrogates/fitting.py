"""Observations, and Gaussian processes that are fitted to them: transformation, correlation and length scales.

A Gaussian process of all values predicts, for each point that was tried, the mean over repetitions. Without noise,
these means are the values themselves. The likelihood decides whether there is noise: values that differ at points close
together, or in repetitions of one point, cannot be described without it. It can be mistaken where a function varies
faster than the distances between the trials near its minimum; then a value of the noise's size is at stake.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from threadpoolctl import ThreadpoolController

from mpi_opt.core.arrays import Bools, Floats, Ints
from mpi_opt.core.figures import Measured
from mpi_opt.core.figures_of_merit import as_tuple
from mpi_opt.core.limits import MIN_VALUES_WITH_NOISE
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.thinning import thinned
from mpi_opt.strategies.points.encoding import Encoding, GrowingArray
from mpi_opt.strategies.strategy import Cost
from mpi_opt.strategies.surrogates.extremes import OFFSETS, scale_of, scaled, unwarped, warped, without_extremes
from mpi_opt.strategies.surrogates.gaussian_process import (
    CORRELATIONS,
    LARGEST_NOISE,
    GaussianProcess,
    Hyperparameters,
    Likelihood,
)
from mpi_opt.strategies.surrogates.principal_axes import principal_axes
from mpi_opt.strategies.surrogates.proposing.scalarization import scalarized


@dataclass(frozen=True)
class Observations:
    """Points and the values observed there, in the order in which the trials ended.

    Attributes:
        rows: Shape (n, n_dimensions), rows of an `Encoding`.
        values: Shape (n,), to be minimised; NaN for a failed trial. With several figures of merit: shape
            (n, n_figures).
        variances: Shape of `values`: the variance of each value, 0 if it is not known.
    """

    rows: Floats
    values: Floats
    variances: Floats

    def weighted(self, weights: Floats) -> Observations:
        """Combines several figures of merit to one by `weights`, shape (n_figures,) (see `scalarized`)."""
        return Observations(self.rows, *scalarized(self.values, self.variances, weights))

    def succeeded(self) -> Observations:
        """The observations without failed trials."""
        return self._kept(np.isfinite(self.values))

    def without_extremes(self) -> Observations:
        """The observations with penalties and outliers replaced by NaN, so that they count as failed trials."""
        values = without_extremes(columns := self.values.reshape(len(self.values), -1))
        if values is columns:
            return self
        return Observations(self.rows, values.reshape(self.values.shape), self.variances)

    def scaled(self) -> Observations:
        """The observations of one figure of merit with values in (-1, 1)."""
        values, uncertainties = scaled(self.values[:, None], np.sqrt(self.variances)[:, None])
        return Observations(self.rows, values[:, 0], uncertainties[:, 0] ** 2)

    def thinned(self, n: int) -> Observations:
        """At most `n` observations: the n/2 best ones, and an even selection of all others. Keeps the order."""
        if len(self.values) <= n:
            return self
        order = np.argsort(self.values, kind="stable")
        others = np.sort(order[n // 2 :])
        spread = others[np.linspace(0, len(others) - 1, n - n // 2).astype(int)]
        return self._kept(np.sort(np.concatenate([order[: n // 2], spread])))

    def spread(self, n: int) -> Observations:
        """At most `n` observations, evenly selected in their order, whatever their values."""
        size = len(self.values)
        return self if size <= n else self.at(np.linspace(0, size - 1, n).astype(int))

    def at(self, index: Ints) -> Observations:
        """The observations with the positions `index`, ascending."""
        return self._kept(index)

    def nearest(self, n: int, row: Floats, is_category: Bools) -> Observations:
        """The `n` observations nearest to `row`, shape (n_dimensions,). Keeps the order."""
        difference = np.where(is_category, 0.5 * (self.rows != row), self.rows - row)
        return self._kept(np.sort(np.argsort((difference * difference).sum(axis=1), kind="stable")[:n]))

    def first(self, n: int) -> Observations:
        """The first `n` observations."""
        return self._kept(slice(n))

    def is_equal(self, other: Observations) -> bool:
        """Whether points, values and variances are the same."""
        pairs = ((self.rows, other.rows), (self.values, other.values), (self.variances, other.variances))
        return all(np.array_equal(ours, theirs) for ours, theirs in pairs)

    def _kept(self, index: Bools | np.ndarray | slice) -> Observations:
        return Observations(self.rows[index], self.values[index], self.variances[index])


@final
class ObservationHistory:
    """All observations of a search.

    Attributes:
        n_succeeded: Number of trials that did not fail.
    """

    def __init__(self, n_dimensions: int, n_figures: int = 1) -> None:
        self._points = GrowingArray(n_dimensions)
        self._values, self._uncertainties = GrowingArray(n_figures), GrowingArray(n_figures)
        self.n_succeeded = 0

    def add(self, row: Floats, cost: Cost | None) -> None:
        """Adds a trial that ended, at `row`: its cost, which may hold uncertainties, or None if it failed."""
        costs = (math.nan,) if cost is None else as_tuple(cost)
        self._points.append(row)
        self._values.append(np.array(costs))
        self._uncertainties.append(np.array([_uncertainty(each) for each in costs]))
        self.n_succeeded += cost is not None

    @property
    def n(self) -> int:
        """Number of trials that have ended."""
        return len(self._points.rows)

    def observations(self, first: int | None = None) -> Observations:
        """A copy of the `first` observations, by default of all.

        Values are scaled to (-1, 1), and are NaN for failed trials, penalties and outliers.
        """
        values, uncertainties = scaled(without_extremes(self._values.rows[:first]), self._uncertainties.rows[:first])
        variances = uncertainties**2
        if values.shape[1] == 1:
            values, variances = values[:, 0], variances[:, 0]
        return Observations(self._points.rows[:first].copy(), values, variances)


def _uncertainty(cost: float) -> float:
    """The standard deviation of a value; 0 if it is not known."""
    known = cost.uncertainty if isinstance(cost, Measured) else None
    return 0.0 if known is None or not math.isfinite(known) else known


FIRST_ANCHOR, ANCHOR_GROWTH = 8, 1.2
"""The number of observations at the first anchor, and its growth from one anchor to the next."""
FIRST_FIT, FIT_GROWTH = 100, 1.05
"""Up to `FIRST_FIT` observations, length scales are fitted to each number of them; then their number grows as above."""
N_ANCHOR_ITERATIONS, N_ITERATIONS = 40, 15
"""The largest numbers of iterations of L-BFGS-B at an anchor and between anchors."""
MAX_VARIANCE = 10.0
"""The largest known variance of a value, in units of the variance of all values."""
MAX_FITTED_OBSERVATIONS = 300
"""Largest number of observations in a Gaussian process. If there are more, the best ones and an even selection of the
others are used, half of this number each."""


@dataclass(frozen=True)
class SurrogateSettings:
    """The settings of a model: a transformation of the values, and hyperparameters.

    Attributes:
        offset: One of `OFFSETS`.
        hyperparameters: Those of the Gaussian process of the transformed values.
    """

    offset: float
    hyperparameters: Hyperparameters


@final
class Surrogate:
    """Fits Gaussian processes. A fit depends on the observations alone, so that it is the same in a resumed search.

    Transformation and correlation are chosen whenever the number of observations has grown by a factor of
    `ANCHOR_GROWTH` (at an *anchor*), from the observations up to there; and again if some of these are penalties now.
    Between anchors, length scales and noise are fitted to each number of observations up to `FIRST_FIT`, then whenever
    it has grown by a factor of `FIT_GROWTH`, starting from those of the anchor. The posterior is always that of all
    observations.

    Args:
        is_category: Shape (n_dimensions,), bool.
    """

    def __init__(self, is_category: Bools) -> None:
        self._is_category = is_category
        self._anchor: tuple[Observations, SurrogateSettings] | None = None
        self._fit: tuple[Observations, SurrogateSettings] | None = None
        self._part: tuple[Observations, SurrogateSettings] | None = None

    def fit(self, observed: Observations) -> tuple[GaussianProcess, float]:
        """Fits a model to all observations.

        Args:
            observed: At least two observations, none failed.

        Returns:
            The model, and its smallest prediction at the observed points.
        """
        n = len(observed.values)
        anchor = observed.first(anchor_size(n, FIRST_ANCHOR, ANCHOR_GROWTH)).thinned(MAX_FITTED_OBSERVATIONS // 2)
        if self._anchor is None or not anchor.is_equal(self._anchor[0]):
            self._anchor, self._fit = (anchor, chosen_settings(anchor, self._is_category)[1]), None
        fitted = observed.first(anchor_size(n, FIRST_FIT, FIT_GROWTH)).thinned(MAX_FITTED_OBSERVATIONS)
        if self._fit is None or not fitted.is_equal(self._fit[0]):
            self._fit = fitted, self._refined(fitted, self._anchor[1])
        return self._posterior(observed.thinned(MAX_FITTED_OBSERVATIONS), self._fit[1])

    def fit_part(self, observed: Observations, fitted: Observations) -> tuple[GaussianProcess, float]:
        """As `fit`, for a part of the observations: without anchors, and without a logarithm of the values.

        Args:
            observed: The part.
            fitted: The part of it that decides on correlation, length scales and noise. As long as it does not change,
                these are not fitted again.
        """
        if self._part is None or not fitted.is_equal(self._part[0]):
            self._part = fitted, self._refined(fitted, self._settings_of_part(fitted))
        return self._posterior(observed, self._part[1])

    def _settings_of_part(self, fitted: Observations) -> SurrogateSettings:
        """The settings with length scales along the principal axes if the values are much more likely with them."""
        density, settings = chosen_settings(fitted, self._is_category, (math.inf,))
        axes, n_angles = principal_axes(fitted.rows, fitted.values, self._is_category)
        if axes is None:
            return settings
        oblique, along_axes = chosen_settings(fitted, self._is_category, (math.inf,), axes=axes)
        # the angles are fitted, too: without this term, axes by chance would often be more likely (Schwarz 1978)
        return along_axes if oblique + 0.5 * n_angles * math.log(len(fitted.values)) < density else settings

    def _refined(self, observed: Observations, start: SurrogateSettings) -> SurrogateSettings:
        y, variances = _standardized(observed, start.offset)
        likelihood = Likelihood(start.hyperparameters.along_axes(observed.rows), self._is_category)
        return replace(start, hyperparameters=likelihood.fit(y, variances, start.hyperparameters, N_ITERATIONS))

    def _posterior(self, observed: Observations, settings: SurrogateSettings) -> tuple[GaussianProcess, float]:
        model = posterior(observed, self._is_category, settings)
        return model, float(model.predict(observed.rows)[0].min())


def posterior(observed: Observations, is_category: Bools, settings: SurrogateSettings) -> GaussianProcess:
    """The posterior of the transformed values for given settings."""
    y, variances = _standardized(observed, settings.offset)
    return GaussianProcess(observed.rows, y, is_category, settings.hyperparameters, variances)


def chosen_settings(
    observed: Observations,
    is_category: Bools,
    offsets: tuple[float, ...] = OFFSETS,
    largest_noise: float = LARGEST_NOISE,
    axes: Floats | None = None,
) -> tuple[float, SurrogateSettings]:
    """The settings with the largest posterior density.

    Args:
        observed: At least two observations, none failed.
        is_category: Shape (n_dimensions,), bool.
        offsets: The transformations to choose from.
        largest_noise: The upper bound of the variance of the noise.

    Returns:
        Minus the logarithm of the density, up to a constant that depends on neither offsets nor bound; the settings.
    """
    n_dimensions = observed.rows.shape[1]
    starts = [replace(Hyperparameters.default(n_dimensions, name), axes=axes) for name in CORRELATIONS]
    likelihood = Likelihood(starts[0].along_axes(observed.rows), is_category)
    found = [_best_settings(likelihood, observed, start, offsets, largest_noise) for start in starts]
    return min(found, key=lambda pair: pair[0])


def _best_settings(
    likelihood: Likelihood,
    observed: Observations,
    start: Hyperparameters,
    offsets: tuple[float, ...],
    largest_noise: float,
) -> tuple[float, SurrogateSettings]:
    """Minus the logarithm of the density of the best settings with the correlation of `start`, and these settings."""
    smallest, offset, found = math.inf, 1.0 if len(offsets) > 1 else offsets[0], start
    for _ in range(min(2, len(offsets))):
        found = likelihood.fit(*_standardized(observed, offset), found, N_ANCHOR_ITERATIONS, largest_noise)
        densities = [_minus_log_density(likelihood, observed, other, found) for other in offsets]
        smallest, offset = min(densities), offsets[int(np.argmin(densities))]
    return smallest, SurrogateSettings(offset, found)


def _minus_log_density(likelihood: Likelihood, observed: Observations, offset: float, at: Hyperparameters) -> float:
    """Minus the logarithm of the density of the values before their transformation."""
    slopes = warped(observed.values, offset)[1]
    return likelihood.minus_log_density(*_standardized(observed, offset), at) - float(slopes.sum())


def _standardized(observed: Observations, offset: float) -> tuple[Floats, Floats]:
    """The transformed values and their variances, in units of their standard deviation; both of shape (n,)."""
    y, slopes = warped(observed.values, offset)
    scale = scale_of(observed.values)
    with np.errstate(over="ignore"):
        relative = observed.variances / scale / scale  # the square of a small scale would be 0
    return y, np.minimum(relative * np.exp(2.0 * slopes), MAX_VARIANCE)


def anchor_size(n: int, first: int, growth: float) -> int:
    """The largest number up to `n` of a sequence that starts with `first` and grows by the factor `growth`.

    `n` itself if it is smaller than `first`.
    """
    size = following = min(n, first)
    while following <= n and size >= first:
        size, following = following, max(int(following * growth), following + 1)
    return size


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
