"""Bayesian search: a Gaussian process guesses what was not tried, and the most promising point is tried next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
from pydantic import Field

from mpi_opt.space import Parameters, Space
from mpi_opt.strategies.draws import Draws
from mpi_opt.strategies.encoding import Encoding
from mpi_opt.strategies.ledger import Ledger
from mpi_opt.strategies.options import Options, read_options
from mpi_opt.strategies.proposer import Proposer
from mpi_opt.strategies.sobol import SobolPoints
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.strategies.surrogate import Told
from mpi_opt.trial import Failed, Proposal


class BayesianOptions(Options):
    """What `Bayesian` takes.

    Attributes:
        initial_points: How many space-filling points come before the first guess.
    """

    initial_points: int | None = Field(default=None, ge=1)


@final
class Bayesian(Strategy):
    """Expected improvement of a Gaussian process; pending trials count at their guessed mean."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(BayesianOptions, options)
        self._n_initial = self._options.initial_points or min(max(8, len(space) + 4), 20)
        self._space, self._seed = space, abs(seed)
        self._ledger = Ledger(space, self._options, keeps_points=True)
        self._draws = Draws(space, seed)
        self._sequence = SobolPoints(len(space), seed)
        self._encoding = Encoding(space)
        self._proposer = Proposer(self._encoding, abs(seed))
        self._rows: list[np.ndarray] = []
        self._values: list[float] = []

    def ask(self, count: int) -> list[Proposal]:
        """`count` proposals."""
        proposals: list[Proposal] = []
        while len(proposals) < count:
            if (known := self._ledger.initial()) is not None:
                proposals.append(self._ledger.propose(known))
            elif self._ledger.n_asked < self._n_initial or np.isfinite(self._values).sum() < 4:
                proposals.append(self._ledger.propose(self._spread()))
            else:
                proposals += self._guesses(count - len(proposals))
        return proposals

    def tell(self, proposal: Proposal, outcome: float | Failed) -> None:
        """Learns from the outcome."""
        self._learn(proposal, self._ledger.settle(proposal, outcome))

    def resume(self, told: Iterable[tuple[Proposal, float | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Learns from every outcome told."""
        for proposal, value in self._ledger.resume(told, pending):
            self._learn(proposal, value)

    def state(self) -> dict[str, Any]:
        """The books in short."""
        return self._ledger.state()

    def _learn(self, proposal: Proposal, value: float | None) -> None:
        self._rows.append(self._encoding.row(proposal.parameters))
        self._values.append(np.nan if value is None else value)

    def _spread(self) -> Parameters:
        point = self._space.decode(self._sequence.point(self._ledger.n_asked))
        is_fine = self._ledger.allows(point) and self._ledger.is_new(point)
        return point if is_fine else self._draws.new_point(self._ledger)

    def _guesses(self, count: int) -> list[Proposal]:
        told = Told(np.array(self._rows), np.array(self._values), np.zeros(len(self._values)))
        pending = [self._encoding.row(p.parameters) for _, p in sorted(self._ledger.pending.items())]
        rows = self._proposer.propose(told, np.array(pending), self._ledger.n_asked, count, self._is_allowed)
        if not rows:
            return [self._ledger.propose(self._draws.new_point(self._ledger))]
        return [self._ledger.propose(self._encoding.point(row)) for row in rows]

    def _is_allowed(self, row: np.ndarray) -> bool:
        point = self._encoding.point(row)
        return self._ledger.allows(point) and self._ledger.is_new(point)
