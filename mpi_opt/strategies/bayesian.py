"""Bayesian search: a Gaussian process guesses what was not tried, and the most promising point is tried next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
from pydantic import Field
from scipy.stats import norm
from skopt.learning import GaussianProcessRegressor
from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern

from mpi_opt.space import Parameters, Space
from mpi_opt.strategies.draws import Draws
from mpi_opt.strategies.ledger import Ledger
from mpi_opt.strategies.options import Options, read_options
from mpi_opt.strategies.strategy import Strategy
from mpi_opt.trial import Failed, Proposal


class BayesianOptions(Options):
    """What `Bayesian` takes.

    Attributes:
        initial_points: How many points to draw before the first guess.
    """

    initial_points: int = Field(default=10, ge=1)


@final
class Bayesian(Strategy):
    """Expected improvement of a Gaussian process over random candidates; pending trials count at their guessed mean."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(BayesianOptions, options)
        self._space, self._seed = space, abs(seed)
        self._ledger = Ledger(space, self._options, keeps_points=True)
        self._draws = Draws(space, seed)
        self._told: list[tuple[np.ndarray, float | None]] = []

    def ask(self, count: int) -> list[Proposal]:
        """`count` proposals."""
        return [self._ledger.propose(self._ledger.initial() or self._best_guess()) for _ in range(count)]

    def tell(self, proposal: Proposal, outcome: float | Failed) -> None:
        """Learns from the outcome."""
        self._told.append((self._space.encode(proposal.parameters), self._ledger.settle(proposal, outcome)))

    def resume(self, told: Iterable[tuple[Proposal, float | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Learns from every outcome told."""
        for proposal, value in self._ledger.resume(told, pending):
            self._told.append((self._space.encode(proposal.parameters), value))

    def state(self) -> dict[str, Any]:
        """The books in short."""
        return self._ledger.state()

    def _best_guess(self) -> Parameters:
        ledger = self._ledger
        values = [value for _, value in self._told if value is not None]
        if ledger.n_asked < self._options.initial_points or len(values) < 2:
            return self._draws.new_point(ledger)
        rng = np.random.default_rng([self._seed, ledger.n_asked, 1])
        points = [self._space.sample(rng) for _ in range(500)]
        points = [point for point in points if ledger.allows(point) and ledger.is_new(point)]
        if not points:
            return self._draws.new_point(ledger)
        x = np.array([units for units, _ in self._told])
        y = np.array([max(values) if value is None else value for _, value in self._told])
        kernel = ConstantKernel() * Matern(np.ones(x.shape[1]), [(0.05, 20)] * x.shape[1], nu=2.5)
        model = GaussianProcessRegressor(kernel, alpha=1e-8, normalize_y=True, random_state=0).fit(x, y)
        mean, std = model.predict(np.array([self._space.encode(point) for point in points]), return_std=True)
        gain = (min(values) - mean) / np.maximum(std, 1e-12)
        return points[int(np.argmax(std * (gain * norm.cdf(gain) + norm.pdf(gain))))]
