"""Bayesian optimization: a Gaussian process predicts the cost, and an acquisition function selects the next point.

By default the acquisition function is the logarithm of the expected improvement (Ament et al., NeurIPS 36, 2023).
Pending trials count with their predicted means. Costs with heavy tails are transformed by a logarithm if that makes
them more likely (see `warp`). Every fourth proposal has another category than the incumbent, and every third one comes
from a model of the incumbent's neighbourhood (see `proposer`). With several figures of merit each proposal minimises a
combination with random weights (see `scalarization`).

No proposal is near an observed or a pending point unless there is no other point. Two points are near each other if
they have the same categories and all numbers differ by less than 1e-4 of their range. A trial at such a point would
almost repeat the other trial.

The Gaussian process is implemented in this project (see `gaussian_process`), because that of scikit-optimize takes
seconds per proposal with 200 trials or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, final

import numpy as np
from pydantic import Field, model_validator

from mpi_opt.core.arrays import Floats
from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.thinning import thinned
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
from mpi_opt.strategies.surrogates.observations import ObservationHistory, Observations
from mpi_opt.strategies.surrogates.prepared_proposals import PreparedProposals
from mpi_opt.strategies.surrogates.proposer import Proposer
from mpi_opt.strategies.surrogates.scalarization import drawn_weights

MIN_FITTED_COSTS = 4
"""Fewest costs from which a model is fitted."""
MAX_PENDING_ROWS = 400
"""Largest number of pending points in a model, whose cost is cubic in it. `Halving` can have thousands of them."""


class BayesianOptions(Options):
    """The options of `Bayesian`.

    Attributes:
        acquisition: The acquisition function: ``log-ei``, the logarithm of the expected improvement; ``ei``, the
            expected improvement; ``pi``, the probability of improvement; ``lcb``, the lower confidence bound.
        kappa: With ``lcb``: number of standard deviations below the mean. Larger values explore more.
        xi: With ``log-ei``, ``ei`` and ``pi``: the least improvement that counts, in standard deviations of the
            costs to which the model was fitted, after a logarithm if one was applied. Larger values explore more. By
            default 0, with ``pi`` 0.01.
        initial_points: Number of trials before the first model: known points, then space-filling ones; by default
            twice the number of hyperparameters plus 4, but at least 8 and at most 20.
        await_refit_up_to: With at most this many trials pending, a proposal waits for a model of all outcomes
            (hundredths to tenths of a second), and the same sequence of ``ask`` and ``tell`` gives the same proposals.
            With more, proposals are prepared in the background.
    """

    acquisition: Literal["log-ei", "ei", "pi", "lcb"] = "log-ei"
    kappa: float = Field(default=1.96, ge=0)
    xi: float | None = Field(default=None, ge=0)
    initial_points: int | None = Field(default=None, ge=1)
    await_refit_up_to: int = Field(default=16, ge=0)

    @model_validator(mode="after")
    def _check_combination(self) -> BayesianOptions:
        unused = "xi" if self.acquisition == "lcb" else "kappa"
        if unused in self.model_fields_set:
            raise ConfigurationError(f"acquisition: {self.acquisition} has no {unused}", where=unused, cure="remove it")
        return self

    @property
    def criterion(self) -> Criterion:
        """The acquisition function."""
        if self.acquisition == "lcb":
            return LowerConfidenceBound(self.kappa)
        if self.acquisition == "pi":
            return ProbabilityOfImprovement(0.01 if self.xi is None else self.xi)
        kind = LogExpectedImprovement if self.acquisition == "log-ei" else ExpectedImprovement
        return kind(self.xi or 0.0)


@final
class Bayesian(Strategy):
    """Proposes space-filling points first, then maxima of the acquisition function."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._options = read_options(BayesianOptions, options)
        self._n_initial = self._options.initial_points or min(max(8, 2 * len(space) + 4), 20)
        self._space = space
        self._encoding = Encoding(space)
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True, encoding=self._encoding)
        self._sampler, self._design = Sampler(space, seed), SobolDesign(space, seed)
        self._seed = seed
        self._proposer = self._new_proposer()
        self._history = ObservationHistory(self._encoding)
        self._prepared: PreparedProposals[Floats] = PreparedProposals()

    def expect(self, n_figures: int) -> None:
        self._bookkeeping.n_figures, self._history = n_figures, ObservationHistory(self._encoding, n_figures)

    def ask(self, count: int) -> list[Proposal]:
        count = whole_number(count, "ask")
        proposals: list[Proposal] = []
        while len(proposals) < count:
            if (known := self._bookkeeping.next_known_point()) is not None:
                proposals.append(self._bookkeeping.propose(known))
            elif self._bookkeeping.n_asked < self._n_initial or self._history.n_succeeded < MIN_FITTED_COSTS:
                proposals.append(self._bookkeeping.propose(self._design.new_point(self._bookkeeping)))
            elif len(self._bookkeeping.pending) <= self._options.await_refit_up_to:
                n_more = self._options.await_refit_up_to + 1 - len(self._bookkeeping.pending)
                proposals += self._propose_after_refit(min(count - len(proposals), n_more))
            else:
                proposals.append(self._bookkeeping.propose(self._prepared_point()))
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        self._history.add(proposal, self._bookkeeping.observe(proposal, outcome))
        if len(self._bookkeeping.pending) > self._options.await_refit_up_to:
            self._prepare()

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)

    def _propose_after_refit(self, count: int) -> list[Proposal]:
        """Up to `count` proposals from a model of all observations."""
        self._prepared.wait()  # its thread uses the same model
        self._prepared.clear()
        rows = self._prepared_search(self._pending_rows(), count)()
        points = [self._encoding.point(row) for row in rows] or [self._sampler.new_point(self._bookkeeping)]
        return [self._bookkeeping.propose(point) for point in points]

    def _prepared_point(self) -> Parameters:
        """The next prepared point; if there is none, a random one, near the best points or anywhere."""
        self._prepare()
        while (row := self._prepared.pop()) is not None:
            point = self._encoding.point(row)
            if self._bookkeeping.accepts(point):
                return point
        for row in self._proposer.quick_rows(self._history.best_rows(), self._bookkeeping.n_asked):
            point = self._encoding.point(row)
            if self._bookkeeping.accepts(point):
                return point
        return self._sampler.new_point(self._bookkeeping)

    def _prepare(self) -> None:
        """Collects prepared proposals and starts to prepare the next ones."""
        if self._history.n_succeeded >= MIN_FITTED_COSTS:
            self._prepared.refill(
                lambda rows, count: self._prepared_search(np.vstack([self._pending_rows(), *rows]), count)
            )

    def _new_proposer(self) -> Proposer:
        return Proposer(self._encoding, self._seed, self._options.criterion)

    def _prepared_search(self, pending: Floats, count: int) -> Callable[[], list[Floats]]:
        """A function that returns the next `count` rows, based on the current observations, in any thread."""
        observed, number = self._history.observations(), self._bookkeeping.n_asked

        def rows() -> list[Floats]:
            if self._bookkeeping.n_figures > 1:
                return self._search_front(observed, pending, number, count)
            return self._proposer.propose(observed, pending, number, count, self._is_allowed)

        return rows

    def _search_front(self, observed: Observations, pending: Floats, number: int, count: int) -> list[Floats]:
        """Rows with new weights, and therefore a new model, for each; the earlier rows count as pending."""
        rows: list[Floats] = []
        for trial in range(number, number + count):
            weighted = observed.weighted(drawn_weights(self._bookkeeping.n_figures, self._seed, trial))
            rows += self._new_proposer().propose(weighted, np.vstack([pending, *rows]), trial, 1, self._is_allowed)
        return rows

    def _pending_rows(self) -> Floats:
        """The pending points; of more than `MAX_PENDING_ROWS` the latest and an even selection of the others."""
        pending = self._bookkeeping.pending
        chosen = thinned(sorted(pending, reverse=True), MAX_PENDING_ROWS)
        return self._encoding.rows(pending[number].parameters for number in sorted(chosen))

    def _is_allowed(self, row: Floats) -> bool:
        return self._bookkeeping.accepts(self._encoding.point(row))
