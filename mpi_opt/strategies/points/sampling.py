"""Points drawn from the priors, by number: point k is a function of the seed and k alone, and costs microseconds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import final

import numpy as np

from mpi_opt.core.space import Categorical, Dimension, Integer, Parameters, Real, Space, Value
from mpi_opt.errors import SearchFailed
from mpi_opt.strategies.points.bookkeeping import Ledger

BLOCK = 256
N_ATTEMPTS = 64
LARGEST_LISTED = 200_000


@final
class Draws:
    """Points of a space, drawn in blocks because a block costs hardly more than a point.

    Args:
        space: The search space.
        seed: Non-negative or not; any integer.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, abs(seed)
        self._names = tuple(space)
        self._is_conditional = any(dimension.when for dimension in space.values())
        self._block_number = -1
        self._block: list[tuple] = []
        self._allowed: list[Parameters] | None = None

    def point(self, number: int) -> Parameters:
        """Draw `number`."""
        block_number, row = divmod(number, BLOCK)
        if block_number != self._block_number:
            self._block, self._block_number = self._drawn(block_number), block_number
        parameters = dict(zip(self._names, self._block[row], strict=True))
        return self._space.active(parameters) if self._is_conditional else parameters

    def new_point(self, ledger: Ledger) -> Parameters:
        """The draw with the ledger's next number; another if that was seen or is not allowed.

        Raises:
            SearchFailed: No allowed point was found.
        """
        point = self.point(ledger.n_asked)
        if ledger.allows(point) and ledger.is_new(point):
            return point
        rng = np.random.default_rng([self._seed, ledger.n_asked])
        for _ in range(N_ATTEMPTS):
            point = self._space.sample(rng)
            if ledger.allows(point) and ledger.is_new(point):
                return point
        return self._point_left(ledger, rng)

    def _point_left(self, ledger: Ledger, rng: np.random.Generator) -> Parameters:
        """A point where new or allowed ones are rare: from the list of all, or by long trying."""
        if self._space.size <= LARGEST_LISTED:
            if self._allowed is None:
                self._allowed = list(all_points(self._space, allows=ledger.allows))
            left = [point for point in self._allowed if ledger.is_new(point)] or self._allowed
        else:
            candidates = (self._space.sample(rng) for _ in range(LARGEST_LISTED))
            left = []
            for point in itertools.islice(filter(ledger.allows, candidates), N_ATTEMPTS):
                if ledger.is_new(point):
                    return point
                left.append(point)
        if not left:
            raise SearchFailed("no point of the search space meets the constraints: loosen search.options.constraints")
        return dict(left[int(rng.integers(len(left)))])

    def _drawn(self, block_number: int) -> list[tuple]:
        units = np.random.default_rng([self._seed, block_number, BLOCK]).random((len(self._names), BLOCK))
        return list(zip(*map(_decoded, self._space.values(), units), strict=True))


def _decoded(dimension: Dimension, units: np.ndarray) -> list:
    """`dimension.decode` for a whole array of shape (n,)."""
    if isinstance(dimension, Real) and dimension.step is None:
        low, high = dimension.low, dimension.high
        if dimension.prior == "log-uniform":
            values = np.exp(math.log(low) + units * (math.log(high) - math.log(low)))
        else:
            values = low + units * (high - low)
        return np.clip(values, low, high).tolist()
    return [dimension.decode(unit) for unit in units.tolist()]


def all_points(
    space: Space,
    values: Mapping[str, Sequence[Value]] | None = None,
    allows: Callable[[Parameters], bool] = lambda point: True,
) -> Iterator[Parameters]:
    """Every different point of a finite space, once, one after the other, the last hyperparameter running fastest.

    Args:
        space: The search space.
        values: The values to take of each hyperparameter; default: all.
        allows: Whether a point is wanted. Asked about a part of a point, too, whose other hyperparameters are open: if
            that is not wanted, no point with it is, and all of them are passed over at once.
    """
    values = values or {name: values_of(dimension) for name, dimension in space.items()}
    for point in _extended(space, values, allows, space.order, {}):
        yield {name: point[name] for name in space if name in point}


def _extended(
    space: Space,
    values: Mapping[str, Sequence[Value]],
    allows: Callable[[Parameters], bool],
    names: tuple[str, ...],
    so_far: Parameters,
) -> Iterator[Parameters]:
    if not names:
        yield so_far
        return
    name, rest = names[0], names[1:]
    if not space.is_active(name, so_far):
        yield from _extended(space, values, allows, rest, so_far)
        return
    for value in values[name]:
        longer = so_far | {name: value}
        if allows(longer):
            yield from _extended(space, values, allows, rest, longer)


def values_of(dimension: Dimension) -> Sequence[Value]:
    """Every value of a finite dimension, in order, each made when it is looked at: there may be very many."""
    return dimension.categories if isinstance(dimension, Categorical) else _Steps(dimension)


@final
class _Steps(Sequence[Value]):
    """The values of a number with a step."""

    def __init__(self, dimension: Real | Integer) -> None:
        self._dimension, self._n = dimension, int(dimension.size)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> Value:
        if not 0 <= index < self._n:
            raise IndexError(index)
        dimension = self._dimension
        return dimension.exact(dimension.low + index * dimension.step)
