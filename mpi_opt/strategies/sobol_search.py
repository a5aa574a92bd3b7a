"""Sobol search: a scrambled low-discrepancy sequence (Owen 1998), which leaves smaller holes than chance does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.points.bookkeeping import Ledger
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.points.sampling import Draws
from mpi_opt.strategies.points.sobol import SobolPoints
from mpi_opt.strategies.strategy import Cost, Strategy


@final
class SobolSearch(Strategy):
    """Point k of the sequence for proposal k; where that was seen or is not allowed, a point drawn at random."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._space = space
        self._ledger = Ledger(space, read_options(Options, options))
        self._draws = Draws(space, seed)
        self._sequence = SobolPoints(len(space), seed)

    def ask(self, count: int) -> list[Proposal]:
        """`count` points; repeats come only when the whole space was proposed."""
        return [self._ledger.propose(self._ledger.initial() or self._next()) for _ in range(count)]

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Notes the point as seen; nothing is learnt."""
        self._ledger.settle(proposal, outcome)

    def expect(self, n_merits: int) -> None:
        """Several figures of merit are as well as one: what trials gave is not looked at."""

    def resume(self, told: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Goes on with the numbers after the last one."""
        self._ledger.resume(told, pending)

    def state(self) -> dict[str, Any]:
        """The books in short."""
        return self._ledger.state()

    def _next(self) -> Parameters:
        ledger = self._ledger
        point = self._space.decode(self._sequence.point(ledger.n_asked))
        return point if ledger.allows(point) and ledger.is_new(point) else self._draws.new_point(ledger)
