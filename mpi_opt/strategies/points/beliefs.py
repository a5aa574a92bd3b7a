"""Beliefs of the user about a space as densities, and quasi-random points that follow them.

As in πBO (Hvarfner et al., ICLR 2022), the density multiplies the acquisition function, with an exponent that decreases
as 1/n with the number of results, and some of the first points are drawn from it. Two differences make the search
forget a wrong belief sooner: a part of the density of each number is uniform, and the exponent is 0 unless the results
agree with the belief.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy  # loads its subpackages on first use; see `load_library`

from mpi_opt.core.arrays import Bools, Floats, Ints
from mpi_opt.core.search_space.belief import Belief
from mpi_opt.core.search_space.dimension import Categorical, Integer
from mpi_opt.core.search_space.space import Parameters, Real, Space
from mpi_opt.strategies.points.bookkeeping import Bookkeeping
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.points.sampling import Sampler

OPEN = 0.1
"""The part of the density of a number that is uniform."""
LEAST_STD = 0.02
"""The least standard deviation, in units of the range."""
STRENGTH = 10.0
"""The number of results up to which the density counts in full."""
FULL_AGREEMENT = 0.5
"""The rank correlation of density and results from which on a belief counts in full."""


@dataclass(frozen=True)
class _Normal:
    """The density of a number in the unit interval: a normal one, truncated, and a uniform one.

    Attributes:
        mean: Its mode.
        std: Its standard deviation without the truncation.
    """

    mean: float
    std: float

    @classmethod
    def of(cls, dimension: Real | Integer, belief: Belief) -> _Normal:
        low, high = (min(max(end, dimension.low), dimension.high) for end in (belief.low, belief.high))
        mean, *ends = (dimension.encode(value) for value in (belief.value, low, high))
        return cls(mean, max(LEAST_STD, *(abs(end - mean) for end in ends)))

    def log_density(self, u: Floats) -> tuple[Floats, Floats]:
        """The logarithm of the density at `u`, and its derivative; of the shape of `u`."""
        z = (u - self.mean) / self.std
        low, high = scipy.special.ndtr(self._ends)
        normal = (1.0 - OPEN) * np.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * self.std * (high - low))
        return np.log(normal + OPEN), -z / self.std * normal / (normal + OPEN)

    def quantile(self, u: float) -> float:
        """The place below which the part `u` of the normal density lies."""
        low, high = scipy.special.ndtr(self._ends)
        return float(np.clip(self.mean + self.std * scipy.special.ndtri(low + u * (high - low)), 0.0, 1.0))

    @property
    def _ends(self) -> Floats:
        """The ends of the unit interval, in standard deviations."""
        return (np.array([0.0, 1.0]) - self.mean) / self.std


@final
class Beliefs:
    """The density of all beliefs, relative to that of the priors. A hyperparameter without a belief counts 1.

    Args:
        space: The search space.
    """

    def __init__(self, space: Space) -> None:
        self._space, self._encoding = space, Encoding(space)
        self._numbers: dict[int, _Normal] = {}
        self._chances: dict[int, Floats] = {}  # of each category, relative to their mean
        for index, dimension in enumerate(space.values()):
            if (belief := dimension.belief) is None:
                continue
            if isinstance(dimension, Categorical):
                chances = np.ones(len(dimension.categories))
                chances[dimension.index(belief.value)] = belief.factor
                self._chances[index] = chances / chances.mean()
            elif isinstance(dimension, Real | Integer):
                self._numbers[index] = _Normal.of(dimension, belief)
        self._are_conditional = any(dimension.belief and dimension.when for dimension in space.values())

    def __bool__(self) -> bool:
        return bool(self._numbers or self._chances)

    def log_density(self, rows: Floats) -> Floats:
        """At each of `rows` (m, n_dimensions) of an `Encoding`: shape (m,)."""
        total, is_active = np.zeros(len(rows)), self._is_active(rows)
        for index, normal in self._numbers.items():
            total += normal.log_density(rows[:, index])[0] * is_active[:, index]
        for index, chances in self._chances.items():
            total += np.log(chances[self._categories(rows, index)]) * is_active[:, index]
        return total

    def exponent(self, rows: Floats, values: Floats) -> float:
        """How much the density counts after some results: 0 if the likely points are not better than the others.

        Args:
            rows: Shape (n, n_dimensions), rows of an `Encoding`.
            values: Shape (n,), to be minimised, finite; at least two.
        """
        likely, good = (
            scipy.stats.rankdata(each) - 0.5 * (len(values) + 1) for each in (self.log_density(rows), -values)
        )
        # 1e-12: results that are all equal have no ranks to agree with, and count as no correlation
        correlation = float(likely @ good) / math.sqrt(max(float(likely @ likely) * float(good @ good), 1e-12))
        return min(1.0, STRENGTH / len(values)) * min(max(correlation / FULL_AGREEMENT, 0.0), 1.0)

    def slope(self, row: Floats) -> Floats:
        """The gradient of the logarithm of the density at one row (n_dimensions,); 0 for categories."""
        found, is_active = np.zeros(len(row)), self._is_active(row[None, :])[0]
        for index, normal in self._numbers.items():
            found[index] = float(normal.log_density(row[index])[1]) * is_active[index]
        return found

    def drawn(self, units: Floats) -> Floats:
        """The point of the unit cube that the quantiles `units` (n_dimensions,) of the beliefs have."""
        found = units.copy()
        for index, normal in self._numbers.items():
            found[index] = normal.quantile(units[index])
        for index, chances in self._chances.items():
            below = np.cumsum(chances) / chances.sum()
            category = min(int(np.searchsorted(below, units[index], side="right")), len(chances) - 1)
            found[index] = (category + 0.5) / len(chances)
        return found

    def mode(self, units: Floats) -> Floats:
        """The expected point in the unit cube; hyperparameters without a belief are those of `units`."""
        found = units.copy()
        for index, normal in self._numbers.items():
            found[index] = normal.mean
        for index, chances in self._chances.items():
            found[index] = (int(chances.argmax()) + 0.5) / len(chances)
        return found

    def _categories(self, rows: Floats, index: int) -> Ints:
        n, column = len(self._chances[index]), rows[:, index]
        found: Ints = np.minimum((column if self._encoding.is_category[index] else column * n).astype(int), n - 1)
        return found

    def _is_active(self, rows: Floats) -> Bools:
        """Whether each hyperparameter is active at each row: shape of `rows`."""
        if not self._are_conditional:
            return np.ones(rows.shape, dtype=bool)
        return self._space.active_units(self._encoding.units(rows))


SOBOL_CHUNK = 128
"""Points of the sequence are computed in chunks of this size, because a chunk costs hardly more than a point."""


@final
class SobolDesign:
    """Space-filling points of at most 21201 dimensions: a scrambled Sobol sequence (Owen, J. Complexity 14, 1998).

    Point k is a function of the space, the seed and k alone; with beliefs, except for the expected point.

    Args:
        space: The search space.
        seed: The seed.
        beliefs: With beliefs of the user, the expected point is the first one, and every second point is drawn from
            them.
    """

    def __init__(self, space: Space, seed: int, beliefs: Beliefs | None = None) -> None:
        self._space, self._seed, self._beliefs = space, seed, beliefs
        self._sampler = Sampler(space, seed)
        self._first, self._chunk = -1, np.empty((0, len(space)))

    def new_point(self, bookkeeping: Bookkeeping) -> Parameters:
        """The expected point, until it was tried; then the point with the number of the next proposal.

        A random point replaces one that is not accepted.

        Raises:
            SearchFailed: No point that satisfies the constraints was found.
        """
        if self._beliefs and bookkeeping.accepts(expected := self._space.decode(self._beliefs.mode(self._units(0)))):
            return expected
        point = self._point(bookkeeping.n_asked)
        return point if bookkeeping.accepts(point) else self._sampler.new_point(bookkeeping)

    def _point(self, number: int) -> Parameters:
        units = self._units(number)
        return self._space.decode(self._beliefs.drawn(units) if self._beliefs and number % 2 == 0 else units)

    def _units(self, number: int) -> Floats:
        first = number - number % SOBOL_CHUNK
        if first != self._first:
            engine = scipy.stats.qmc.Sobol(
                len(self._space), scramble=True, rng=np.random.default_rng([self._seed, SOBOL_CHUNK])
            )
            if first:
                engine.fast_forward(first)
            with warnings.catch_warnings():
                # SciPy warns that the balance properties need a power of two of points from the start
                warnings.simplefilter("ignore", UserWarning)
                self._chunk = engine.random(SOBOL_CHUNK)
            self._first = first
        found: Floats = self._chunk[number - first]
        return found
