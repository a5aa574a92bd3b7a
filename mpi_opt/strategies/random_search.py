"""Random search: points drawn from the priors (Bergstra and Bengio, JMLR 13, 2012), the baseline of every search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from mpi_opt.core.space import Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.points.bookkeeping import Ledger
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.points.sampling import Draws
from mpi_opt.strategies.strategy import Cost, Strategy


@final
class RandomSearch(Strategy):
    """Draws every point anew; proposal k is a function of the seed, of k and, in a finite space, of what was seen."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._ledger = Ledger(space, read_options(Options, options))
        self._draws = Draws(space, seed)

    def ask(self, count: int) -> list[Proposal]:
        """`count` points; repeats come only when the whole space was proposed."""
        ledger, draws = self._ledger, self._draws
        return [ledger.propose(ledger.initial() or draws.new_point(ledger)) for _ in range(count)]

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
