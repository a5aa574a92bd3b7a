"""Random points of a search space, and the points of a finite one in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import final

import numpy as np

from mpi_opt.core.arrays import Floats
from mpi_opt.core.search_space.space import Dimension, Limits, Parameters, Real, Space, Value
from mpi_opt.errors import SearchFailed
from mpi_opt.strategies.points.bookkeeping import Bookkeeping

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
