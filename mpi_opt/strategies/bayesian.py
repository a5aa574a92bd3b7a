"""Bayesian search: a Gaussian process guesses what was not tried, and the most promising point is tried next.

The next point has the largest logarithm of expected improvement (Ament et al. 2023), or what `acquisition` asks for;
trials that are pending count at their predicted mean; what is minimised is pulled in by a logarithm where that explains
it better. Every fourth proposal leaves a category of the best trial (see `proposer`). The process is this project's
own (see `gaussian_process`): a tell and an ask of scikit-optimize's cost seconds from 200 trials on. That library
serves the other surrogate, the forest. Of several figures of merit each proposal makes one by random weights (see
`scalarisation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, final

import numpy as np
from pydantic import Field, model_validator

from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.points.bookkeeping import Bookkeeping
from mpi_opt.strategies.points.checks import whole_number
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.points.options import Options, read_options
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.points.sobol import SobolDesign
from mpi_opt.strategies.strategy import Cost, Strategy
from mpi_opt.strategies.surrogates.acquisition import (
    Criterion,
    ExpectedImprovement,
    LogExpectedImprovement,
    LowerConfidenceBound,
    ProbabilityOfImprovement,
)
from mpi_opt.strategies.surrogates.observations import History, Told
from mpi_opt.strategies.surrogates.prior import Prior
from mpi_opt.strategies.surrogates.proposer import Proposer
from mpi_opt.strategies.surrogates.scalarization import drawn_weights
from mpi_opt.strategies.surrogates.stock import Stock

FEWEST_TOLD = 4
MOST_DIMENSIONS = 60


class BayesianOptions(Options):
    """What `Bayesian` takes.

    Attributes:
        surrogate: ``gp``, a Gaussian process; ``forest``, scikit-optimize's trees; ``auto``: a forest for more
            than 60 hyperparameters.
        acquisition: What makes a point promising: ``log-ei``, the logarithm of the expected improvement; ``ei``, that
            improvement itself; ``pi``, the probability of one; ``lcb``, the lower confidence bound.
        kappa: With ``lcb``: how many standard deviations below the mean the bound lies; the more, the more is explored.
        xi: With ``log-ei``, ``ei`` and ``pi``: only what is better by more than this is an improvement, in standard
            deviations of the values told; the more, the more is explored. Default: 0, with ``pi`` 0.01.
        initial_points: How many space-filling points come before the first guess; default: 4 more than twice the number
            of hyperparameters, but from 8 to 20.
        await_refit_up_to: With at most so many trials pending a proposal waits for the refit with all that was told
            (hundredths to tenths of a second), and the same calls give the same proposals. With more pending, proposals
            come from a stock that is prepared beside.
    """

    surrogate: Literal["auto", "gp", "forest"] = "auto"
    acquisition: Literal["log-ei", "ei", "pi", "lcb"] = "log-ei"
    kappa: float = Field(default=1.96, ge=0, allow_inf_nan=False)
    xi: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    initial_points: int | None = Field(default=None, ge=1)
    await_refit_up_to: int = Field(default=16, ge=0)

    @model_validator(mode="after")
    def _is_used(self) -> BayesianOptions:
        unused = "xi" if self.acquisition == "lcb" else "kappa"
        if unused in self.model_fields_set:
            raise ConfigurationError(
                f"acquisition: {self.acquisition} has no {unused}", where=unused, cure="take it out"
            )
        return self

    @property
    def criterion(self) -> Criterion:
        """The acquisition."""
        if self.acquisition == "lcb":
            return LowerConfidenceBound(self.kappa)
        if self.acquisition == "pi":
            return ProbabilityOfImprovement(0.01 if self.xi is None else self.xi)
        kind = LogExpectedImprovement if self.acquisition == "log-ei" else ExpectedImprovement
        return kind(self.xi or 0.0)


@final
class Bayesian(Strategy):
    """The most promising point under a Gaussian process."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(BayesianOptions, options)
        self._n_initial = self._options.initial_points or min(max(8, 2 * len(space) + 4), 20)
        self._space = space
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True)
        self._sampler, self._design = Sampler(space, seed), SobolDesign(space, seed)
        self._encoding = Encoding(space)
        kind = self._options.surrogate
        self._has_forest = kind == "forest" or (kind == "auto" and len(space) > MOST_DIMENSIONS)
        self._seed = seed
        self._prior: Prior | None = None
        self._proposer = self._new_proposer()
        self._history = History(self._encoding)
        self._stock: Stock[np.ndarray] = Stock()

    def expect(self, n_figures: int) -> None:
        """Searches the Pareto front of several figures of merit."""
        self._bookkeeping.n_figures, self._history = n_figures, History(self._encoding, n_figures)

    def learn(self, points: Sequence[tuple[Parameters, float]], known: frozenset[str]) -> bool:
        """Guesses with the help of an earlier study, as far as it agrees with this one."""
        rows = np.array([self._encoding.row(point) for point, _ in points])
        values = np.array([value for _, value in points])
        is_known = np.array([name in known for name in self._space])
        told = Told(rows, values, np.zeros_like(values))
        self._prior = Prior(told, is_known, self._encoding.is_category)
        return True

    def ask(self, count: int) -> list[Proposal]:
        """`count` proposals."""
        count = whole_number(count, "ask")
        proposals: list[Proposal] = []
        while len(proposals) < count:
            if (known := self._bookkeeping.initial()) is not None:
                proposals.append(self._bookkeeping.propose(known))
            elif self._bookkeeping.n_asked < self._n_initial or self._history.n_values < FEWEST_TOLD:
                proposals.append(self._bookkeeping.propose(self._design.new_point(self._bookkeeping)))
            elif len(self._bookkeeping.pending) <= self._options.await_refit_up_to:
                n_more = self._options.await_refit_up_to + 1 - len(self._bookkeeping.pending)
                proposals += self._awaited(min(count - len(proposals), n_more))
            else:
                proposals.append(self._bookkeeping.propose(self._prepared()))
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        """Learns from the outcome."""
        self._history.add(proposal, self._bookkeeping.observe(proposal, outcome), outcome)
        if len(self._bookkeeping.pending) > self._options.await_refit_up_to:
            self._prepare()

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        """Learns from all outcomes."""
        self._bookkeeping.resume(self.tell, observed, pending)

    def state(self) -> dict[str, Any]:
        """The books in short."""
        return self._bookkeeping.state()

    def _awaited(self, count: int) -> list[Proposal]:
        """Up to `count` proposals of a model that knows all that was told."""
        self._stock.wait()  # its thread uses the same model
        self._stock.clear()
        rows = self._sought(self._pending_rows(), count)()
        points = [self._encoding.point(row) for row in rows] or [self._sampler.new_point(self._bookkeeping)]
        return [self._bookkeeping.propose(point) for point in points]

    def _prepared(self) -> Parameters:
        """The next of the stock; if that is used up, a point drawn near the best ones or anywhere."""
        self._prepare()
        while (prepared := self._stock.take()) is not None:
            point = self._encoding.point(prepared)
            if self._bookkeeping.is_new(point):
                return point
        for row in self._proposer.quick_rows(self._history.best_rows(), self._bookkeeping.n_asked):
            point = self._encoding.point(row)
            if self._bookkeeping.allows(point) and self._bookkeeping.is_new(point):
                return point
        return self._sampler.new_point(self._bookkeeping)

    def _prepare(self) -> None:
        """Collects the prepared proposals and starts the preparation of more."""
        if self._history.n_values >= FEWEST_TOLD:
            self._stock.refill(lambda rows, count: self._sought(np.vstack([self._pending_rows(), *rows]), count))

    def _new_proposer(self) -> Proposer:
        return Proposer(self._encoding, self._seed, self._has_forest, self._options.criterion)

    def _sought(self, pending: np.ndarray, count: int) -> Callable[[], list[np.ndarray]]:
        """What finds the next `count` rows, from what is known now; may be called in another thread."""
        told, number = self._history.told(), self._bookkeeping.n_asked
        if self._bookkeeping.n_figures > 1:
            return partial(self._sought_on_front, told, pending, number, count)
        told = told.without_penalties()
        if self._prior is not None:
            return partial(self._sought_with_prior, told, pending, number, count)
        return partial(self._proposer.propose, told, pending, number, count, self._is_allowed)

    def _sought_with_prior(self, told: Told, pending: np.ndarray, number: int, count: int) -> list[np.ndarray]:
        """With the help of the earlier study; by a model without memory, since what it says here changes."""
        extended = self._prior.extend(told)
        return self._new_proposer().propose(extended, pending, number, count, self._is_allowed)

    def _sought_on_front(self, told: Told, pending: np.ndarray, number: int, count: int) -> list[np.ndarray]:
        """Each with weights of its own, the earlier ones pending; by models that know no other weights."""
        rows: list[np.ndarray] = []
        for one in range(number, number + count):
            seen = told.weighted(drawn_weights(self._bookkeeping.n_figures, self._seed, one)).without_penalties()
            is_allowed = partial(self._is_allowed_beside, rows)
            rows += self._new_proposer().propose(seen, np.vstack([pending, *rows]), one, 1, is_allowed)
        return rows

    def _pending_rows(self) -> np.ndarray:
        rows = [self._history.row(proposal) for _, proposal in sorted(self._bookkeeping.pending.items())]
        return np.array(rows).reshape(-1, self._encoding.n_dimensions)

    def _is_allowed_beside(self, others: list[np.ndarray], row: np.ndarray) -> bool:
        return self._is_allowed(row) and not any(np.array_equal(row, other) for other in others)

    def _is_allowed(self, row: np.ndarray) -> bool:
        point = self._encoding.point(row)
        return self._bookkeeping.allows(point) and self._bookkeeping.is_new(point)
