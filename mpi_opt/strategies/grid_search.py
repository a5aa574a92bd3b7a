"""Grid search: every combination once, one after the other, made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
from pydantic import Field

from mpi_learn.settings.yaml_file import nearest
from mpi_opt.core.space import Categorical, Dimension, Parameters, Space, Value
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.bookkeeping import Ledger
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.points.sampling import all_points, values_of
from mpi_opt.strategies.strategy import Cost, Strategy


class GridOptions(Options):
    """What `GridSearch` takes.

    Attributes:
        points: How many values to take of each real hyperparameter without a step, ends included, evenly under its
            prior; or, for each hyperparameter named, how many of it (numbers only).
    """

    points: int | dict[str, int] = Field(default=10)


@final
class GridSearch(Strategy):
    """A linear scan: the last hyperparameter runs fastest. It has finished when every combination was proposed."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        read = read_options(GridOptions, options)
        values = {name: _grid_values(dimension, _n_points(space, name, read)) for name, dimension in space.items()}
        self._ledger = Ledger(space, read, keeps_points=True)
        self._points: Iterator[Parameters] = all_points(space, values, self._ledger.allows)
        self._is_used_up = False

    def ask(self, count: int) -> list[Proposal]:
        """The next combinations; none when there is none left."""
        proposals = []
        while len(proposals) < count and (point := self._next()) is not None:
            proposals.append(self._ledger.propose(point))
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Notes the point as seen; nothing is learnt."""
        self._ledger.settle(proposal, outcome)

    def expect(self, n_merits: int) -> None:
        """Several figures of merit are as well as one: what trials gave is not looked at."""

    def resume(self, told: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Goes on with the first combination that was not tried."""
        self._ledger.resume(told, pending)

    @property
    def finished(self) -> bool:
        """Whether every combination was proposed."""
        return self._is_used_up

    def state(self) -> dict[str, Any]:
        """The books in short."""
        return self._ledger.state()

    def _next(self) -> Parameters | None:
        ledger = self._ledger
        if (known := ledger.initial()) is not None:
            return known
        for point in self._points:
            if ledger.is_new(point):
                return point
        self._is_used_up = True
        return None


def _n_points(space: Space, name: str, options: GridOptions) -> int | None:
    if isinstance(options.points, int):
        counts = {name: options.points} if space[name].size == np.inf else {}
    else:
        counts = options.points
    for key, n in counts.items():
        where = f"search.options.points.{key}"
        if key not in space:
            near = nearest(key, space)
            raise ConfigurationError(
                f"{key} is not a hyperparameter", where=where, cure=f"did you mean {near}?" if near else ""
            )
        if n < 1:
            raise ConfigurationError(f"expected 1 or more, found {n}", where=where)
    return counts.get(name, 10 if space[name].size == np.inf else None)


def _grid_values(dimension: Dimension, n_points: int | None) -> Sequence[Value]:
    if n_points is None or isinstance(dimension, Categorical) or n_points >= dimension.size:
        return values_of(dimension)
    units = np.linspace(0, 1, n_points) if n_points > 1 else [0.5]
    return list(dict.fromkeys(dimension.decode(float(unit)) for unit in units))
