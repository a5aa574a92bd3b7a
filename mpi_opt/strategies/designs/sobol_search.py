"""Sobol search: a scrambled low-discrepancy sequence (Owen, J. Complexity 14, 1998), which covers the space evenly.

Proposal k is point k of the sequence in the unit cube, mapped through the priors. A point that was seen before or
violates a constraint is replaced by a random one. It has no options of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.points.beliefs import SobolDesign
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, read_options
from mpi_opt.strategies.strategy import Cost, Strategy


@final
class SobolSearch(Strategy):
    """Proposal k is a function of the seed, of k and of the points seen before."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._bookkeeping = Bookkeeping(space, read_options(Options, options))
        self._design = SobolDesign(space, seed)

    def ask(self, count: int) -> list[Proposal]:
        """`count` points. Points repeat only after the whole space was proposed."""
        return self._bookkeeping.ask(count, lambda: self._design.new_point(self._bookkeeping))

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        self._bookkeeping.observe(proposal, outcome)

    def expect(self, n_figures: int) -> None:
        """Supports several figures of merit, because costs are not used."""
        self._bookkeeping.expect(n_figures)

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        self._bookkeeping.steer(points, limits)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)
