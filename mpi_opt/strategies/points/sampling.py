"""Points of a search space: random, quasi-random, all of a finite one, and weights by beliefs of the user.

As in πBO (Hvarfner et al., ICLR 2022), the density multiplies the acquisition function, with an exponent that decreases
as 1/n with the number of results, and some of the first points are drawn from it. Two differences make the search
forget a wrong belief sooner: a part of the density of each number is uniform, and the exponent is 0 unless the results
agree with the belief.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc, rankdata

from mpi_opt.core.arrays import Bools, Floats, Ints
from mpi_opt.core.search_space.belief import Belief
from mpi_opt.core.search_space.dimension import Categorical, Integer
from mpi_opt.core.search_space.space import Dimension, Limits, Parameters, Real, Space, Value
from mpi_opt.errors import SearchFailed
from mpi_opt.strategies.points.bookkeeping import Bookkeeping
from mpi_opt.strategies.points.encoding import Encoding

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
        low, high = ndtr(self._ends)
        normal = (1.0 - OPEN) * np.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * self.std * (high - low))
        return np.log(normal + OPEN), -z / self.std * normal / (normal + OPEN)

    def quantile(self, u: float) -> float:
        """The place below which the part `u` of the normal density lies."""
        low, high = ndtr(self._ends)
        return float(np.clip(self.mean + self.std * ndtri(low + u * (high - low)), 0.0, 1.0))

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
        likely, good = (rankdata(each) - 0.5 * (len(values) + 1) for each in (self.log_density(rows), -values))
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


CHUNK = 256
"""Points are drawn in chunks of this size, because a chunk costs hardly more than a point."""
N_ATTEMPTS = 64
"""The number of random points that are drawn before the search for a point becomes thorough."""
MAX_LISTED_POINTS = 200_000
"""The largest space whose points are listed; in a larger one, at most this number of points is drawn."""

N_DRAWN_WITHIN = 20_000
"""The number of points that are drawn in the ranges of `steer`, which the search leaves if none is allowed: 0.2 s."""


@final
class Sampler:
    """Draws points from the priors. Point k is a function of the seed and k alone, and costs microseconds."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
        self._names = tuple(space)
        self._is_conditional = any(dimension.when for dimension in space.values())
        self._chunk_number = -1
        self._chunk: list[tuple[Value, ...]] = []
        self._allowed: list[Parameters] | None = None  # by the constraints; the ranges of `steer` change
        self._unreachable: Limits = {}  # ranges in which no point satisfies the constraints

    def point(self, number: int) -> Parameters:
        """Point `number`."""
        chunk_number, row = divmod(number, CHUNK)
        if chunk_number != self._chunk_number:
            self._chunk, self._chunk_number = self._drawn(chunk_number), chunk_number
        parameters = dict(zip(self._names, self._chunk[row], strict=True))
        return self._space.active(parameters) if self._is_conditional else parameters

    def new_point(self, bookkeeping: Bookkeeping) -> Parameters:
        """The point with the number of the next proposal; another random point if that one is not accepted.

        Raises:
            SearchFailed: No point that satisfies the constraints was found.
        """
        point = self.point(bookkeeping.n_asked)
        if bookkeeping.accepts(point):
            return point
        rng = np.random.default_rng([self._seed, bookkeeping.n_asked])
        for _ in range(N_ATTEMPTS):
            point = self._within_limits(bookkeeping, rng)
            if bookkeeping.accepts(point):
                return point
        return self._remaining_point(bookkeeping, rng)

    def _remaining_point(self, bookkeeping: Bookkeeping, rng: np.random.Generator) -> Parameters:
        """A point of a space in which accepted points are rare: from the list of all points, or after many draws.

        A point near a remembered one may be returned; if there is no new point, one that was seen before. If no point
        in the ranges of `steer` satisfies the constraints, the ranges are ignored: they must not end a search.
        """
        if self._space.size <= MAX_LISTED_POINTS:
            if self._allowed is None:
                self._allowed = list(all_points(self._space, allows=bookkeeping.meets_constraints))
            within = list(filter(bookkeeping.is_within_limits, self._allowed)) or self._allowed
            remaining = [point for point in within if bookkeeping.is_new(point)] or within
        else:
            remaining = self._drawn_points(bookkeeping, rng)
        if not remaining:
            if self._allowed is not None:
                raise SearchFailed("no point of the search space satisfies search.options.constraints: relax them")
            raise SearchFailed(
                f"none of {MAX_LISTED_POINTS:,} random points satisfies search.options.constraints: "
                "narrow the ranges of the hyperparameters, or relax the constraints"
            )
        return dict(remaining[int(rng.integers(len(remaining)))])

    def _drawn_points(self, bookkeeping: Bookkeeping, rng: np.random.Generator) -> list[Parameters]:
        """A new point that satisfies the constraints, or several old ones; empty if many draws find none."""
        if bookkeeping.limits and bookkeeping.limits != self._unreachable:
            within = (self._within_limits(bookkeeping, rng) for _ in range(N_DRAWN_WITHIN))
            if found := _new_or_old(filter(bookkeeping.allows, within), bookkeeping):
                return found
            self._unreachable = bookkeeping.limits
        anywhere = (self._space.sample(rng) for _ in range(MAX_LISTED_POINTS))
        return _new_or_old(filter(bookkeeping.meets_constraints, anywhere), bookkeeping)

    def _within_limits(self, bookkeeping: Bookkeeping, rng: np.random.Generator) -> Parameters:
        """A random point in the ranges of `steer`, which may violate the constraints."""
        low, high = bookkeeping.low, bookkeeping.high
        return self._space.decode(low + rng.random(len(self._space)) * (high - low))

    def _drawn(self, chunk_number: int) -> list[tuple[Value, ...]]:
        units = np.random.default_rng([self._seed, chunk_number, CHUNK]).random((len(self._names), CHUNK))
        return list(zip(*map(_decoded, self._space.values(), units), strict=True))


def _new_or_old(points: Iterator[Parameters], bookkeeping: Bookkeeping) -> list[Parameters]:
    """The first new one of `N_ATTEMPTS` points, or all of them if none is new."""
    old: list[Parameters] = []
    for point in itertools.islice(points, N_ATTEMPTS):
        if bookkeeping.is_new(point):
            return [point]
        old.append(point)
    return old


def _decoded(dimension: Dimension, units: Floats) -> list[Value]:
    """`dimension.decode` applied to an array of shape (n,)."""
    if isinstance(dimension, Real) and dimension.step is None:
        low, high = dimension.low, dimension.high
        if dimension.prior == "log-uniform":
            values = np.exp(math.log(low) + units * (math.log(high) - math.log(low)))
        else:
            values = low + units * (high - low)
        clipped: list[Value] = np.clip(values, low, high).tolist()
        return clipped
    return [dimension.decode(unit) for unit in units.tolist()]


def all_points(
    space: Space,
    values: Mapping[str, Callable[[], Iterable[Value]]] | None = None,
    allows: Callable[[Parameters], bool] = lambda point: True,
) -> Iterator[Parameters]:
    """Iterates over every point of a finite space once; the last hyperparameter in `Space.order` varies fastest.

    Args:
        space: The search space.
        values: Hyperparameter -> a function that returns its values; all values by default.
        allows: Whether a point is wanted. It is also called with partial points, whose other hyperparameters are still
            open. If it rejects a partial point, all points that contain it are skipped.
    """
    values = values or {name: dimension.all_values for name, dimension in space.items()}

    def extended(partial: Parameters, names: tuple[str, ...]) -> Iterator[Parameters]:
        """Yields the points that contain `partial`, with values for `names`."""
        if not names:
            yield {name: partial[name] for name in space if name in partial}
        elif not space.is_active(names[0], partial):
            yield from extended(partial, names[1:])
        else:
            for value in values[names[0]]():
                longer = partial | {names[0]: value}
                if allows(longer):
                    yield from extended(longer, names[1:])

    return extended({}, space.order)


def n_allowed_points(space: Space, allows: Callable[[Parameters], bool]) -> float:
    """The number of points that `allows` accepts (see `all_points`); ``inf`` for spaces that are too large to list."""
    if space.size > MAX_LISTED_POINTS:
        return math.inf
    return sum(1 for _ in all_points(space, allows=allows))


SOBOL_CHUNK = 128
"""Points of the sequence are computed in chunks of this size, because a chunk costs hardly more than a point."""


@final
class SobolDesign:
    """Space-filling points of a search space of at most 21201 dimensions.

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
            engine = qmc.Sobol(len(self._space), scramble=True, rng=np.random.default_rng([self._seed, SOBOL_CHUNK]))
            if first:
                engine.fast_forward(first)
            with warnings.catch_warnings():
                # SciPy warns that the balance properties need a power of two of points from the start
                warnings.simplefilter("ignore", UserWarning)
                self._chunk = engine.random(SOBOL_CHUNK)
            self._first = first
        found: Floats = self._chunk[number - first]
        return found
