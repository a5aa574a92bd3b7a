"""Grid search: every combination of values once, in order, computed when it is proposed.

A full factorial design. A real hyperparameter without a step gets `points` values, evenly spaced under its prior with
both ends included; all other hyperparameters get all of their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

import numpy as np
from pydantic import Field

from mpi_opt.core.search_space.space import Categorical, Dimension, Parameters, Real, Space, Value
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError, SearchFailed
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, read_options
from mpi_opt.strategies.points.checks import unknown_hyperparameter
from mpi_opt.strategies.points.sampling import all_points
from mpi_opt.strategies.strategy import Cost, Strategy

N_POINTS = 10
"""Default of the option `points`."""


class GridOptions(Options):
    """The options of `GridSearch`.

    Attributes:
        points: Number of values of each real hyperparameter without a step, ends included, evenly spaced under its
            prior; or a mapping from hyperparameter to its number of values (numbers only).
    """

    points: int | dict[str, int] = Field(default=N_POINTS)


@final
class GridSearch(Strategy):
    """A linear scan in which the last hyperparameter varies fastest. It finishes after the last combination."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        read = read_options(GridOptions, options)
        counts = _counts(space, read)
        values = {name: _grid_values(dimension, counts.get(name)) for name, dimension in space.items()}
        self._bookkeeping = Bookkeeping(space, read, remembers_points=True)
        self._points: Iterator[Parameters] = all_points(space, values, self._bookkeeping.allows)
        self._is_exhausted = False

    def ask(self, count: int) -> list[Proposal]:
        """The next combinations; none after the last one.

        Raises:
            SearchFailed: No combination satisfies the constraints.
        """
        return self._bookkeeping.ask(count, self._point)

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        self._bookkeeping.observe(proposal, outcome)

    def expect(self, n_figures: int) -> None:
        """Supports several figures of merit, because costs are not used."""
        self._bookkeeping.expect(n_figures)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)

    @property
    def finished(self) -> bool:
        """Whether every combination was proposed."""
        return self._is_exhausted

    def _point(self) -> Parameters | None:
        point = next(filter(self._bookkeeping.is_new, self._points), None)
        self._is_exhausted = point is None
        if point is None and self._bookkeeping.n_asked == 0:
            raise SearchFailed("no point of the grid satisfies search.options.constraints: add points, or relax them")
        return point


def _counts(space: Space, options: GridOptions) -> dict[str, int]:
    """The number of values of each hyperparameter for which it is given or needed."""
    continuous = [name for name, dimension in space.items() if dimension.size == math.inf]
    points = options.points
    given = dict.fromkeys(continuous, points) if isinstance(points, int) else points
    for name, count in given.items():
        where = f"search.options.points.{name}"
        if name not in space:
            raise unknown_hyperparameter(name, space, where)
        if count < 1:
            raise ConfigurationError(f"expected 1 or more, found {count}", where=where, cure="write a number from 1")
        if isinstance(space[name], Categorical):
            raise ConfigurationError(
                "a categorical hyperparameter gets all of its values", where=where, cure="remove it"
            )
    return dict.fromkeys(continuous, N_POINTS) | given


def _grid_values(dimension: Dimension, count: int | None) -> Callable[[], Iterable[Value]]:
    if count is None or count >= dimension.size:
        return dimension.all_values
    units = np.linspace(0, 1, count).tolist() if count > 1 else [0.5]
    found = list(dict.fromkeys(_rounded(dimension, dimension.decode(unit)) for unit in units))
    return lambda: found


def _rounded(dimension: Dimension, value: Value) -> Value:
    """A value of a continuous dimension without errors of rounding: 0.3, not 0.30000000000000004."""
    if not isinstance(dimension, Real) or dimension.step is not None or value in (dimension.low, dimension.high):
        return value
    assert isinstance(value, float)
    rounded = float(f"{value:.12g}")
    return rounded if abs(rounded - value) < 1e-9 * (dimension.high - dimension.low) else value
