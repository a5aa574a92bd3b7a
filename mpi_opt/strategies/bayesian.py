"""Bayesian optimization: a Gaussian process predicts the cost, and an acquisition function selects the next point.

By default the acquisition function is the logarithm of the expected improvement (Ament et al., NeurIPS 36, 2023).
Pending trials count with their predicted means. Costs with heavy tails are transformed by a logarithm if that makes
them more likely (see `extremes.warped`). Every fourth proposal has another category than the incumbent, every eighth
one after 100 trials another value of one number alone, and every third one comes from a model of the incumbent's
neighbourhood (see `proposer`), whose length scales can be along the axes of an oblique valley (see `principal_axes`).
With several figures of merit each proposal minimises a combination with random weights (see `scalarization`).

No proposal is near an observed or a pending point unless there is no other point. Two points are near each other if
they have the same categories and all numbers differ by less than 1e-4 of their range. A trial at such a point would
almost repeat the other trial.

Beliefs of the user (``expect``) weigh the acquisition function, the less the more results there are, and decide on half
of the initial points (see `points.beliefs`).

The Gaussian process is implemented in this project (see `gaussian_process`), because that of scikit-optimize takes
seconds per proposal with 200 trials or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
from pydantic import Field, model_validator

from mpi_opt.core.arrays import Floats
from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.thinning import thinned
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.errors import ConfigurationError
from mpi_opt.strategies.evolution.breeder import Breeder
from mpi_opt.strategies.points.beliefs import Beliefs, SobolDesign
from mpi_opt.strategies.points.bookkeeping import Bookkeeping, Options, n_initial_points, read_options
from mpi_opt.strategies.points.checks import whole_number
from mpi_opt.strategies.points.encoding import Encoding
from mpi_opt.strategies.points.sampling import Sampler
from mpi_opt.strategies.strategy import Cost, Strategy
from mpi_opt.strategies.surrogates.fitting import ObservationHistory, Observations
from mpi_opt.strategies.surrogates.proposing.acquisition import (
    Criterion,
    ExpectedImprovement,
    LogExpectedImprovement,
    LowerConfidenceBound,
    ProbabilityOfImprovement,
)
from mpi_opt.strategies.surrogates.proposing.proposer import Proposer
from mpi_opt.strategies.surrogates.proposing.scalarization import drawn_weights

MIN_FITTED_COSTS = 4
"""Fewest costs from which a model is fitted."""
MAX_PENDING_ROWS = 400
"""Largest number of pending points in a model, whose cost is cubic in it. `Halving` can have thousands of them."""
MAX_MODELLED = 10**9
"""More proposals than any call asks for."""


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
        await_refit_up_to: With at most this many trials pending, a proposal waits for a model of all outcomes, which
            takes hundredths to tenths of a second. The others are children of the best trials, as those of
            ``evolutionary``. By default, proposals wait as long as blocks lose less than 1.5 % of their time.
    """

    acquisition: Literal["log-ei", "ei", "pi", "lcb"] = "log-ei"
    kappa: float = Field(default=1.96, ge=0)
    xi: float | None = Field(default=None, ge=0)
    initial_points: int | None = Field(default=None, ge=1)
    await_refit_up_to: int | None = Field(default=None, ge=0)

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
        self._n_initial = n_initial_points(len(space), self._options.initial_points)
        self._space = space
        self._encoding = Encoding(space)
        self._bookkeeping = Bookkeeping(space, self._options, remembers_points=True, encoding=self._encoding)
        self._beliefs = Beliefs(space)
        self._sampler, self._design = Sampler(space, seed), SobolDesign(space, seed, self._beliefs)
        self._seed = seed
        self._proposer = self._new_proposer()
        self._breeder = Breeder(space, seed, encoding=self._encoding)
        self._n_affordable = math.inf

    def expect(self, n_figures: int) -> None:
        self._bookkeeping.expect(n_figures)
        self._breeder = Breeder(self._space, self._seed, n_figures=n_figures, encoding=self._encoding)

    def afford(self, n_models: float) -> None:
        self._n_affordable = n_models

    def ask(self, count: int) -> list[Proposal]:
        count = whole_number(count, "ask")
        proposals: list[Proposal] = []
        while len(proposals) < count:
            if (known := self._bookkeeping.next_known_point()) is not None:
                points = [known]
            elif not self.may_model:
                points = [self._design.new_point(self._bookkeeping)]
            elif (n_modelled := min(self._n_modelled(len(proposals)), count - len(proposals))) > 0:
                points = self._modelled_points(n_modelled)
            else:
                points = [self._child(count - len(proposals))]
            for point in points:
                proposals.append(self._bookkeeping.propose(point))
                self._breeder.start(proposals[-1])
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        is_new = proposal.number not in self._bookkeeping.pending
        cost = self._bookkeeping.observe(proposal, outcome)
        if is_new:
            self._breeder.start(proposal)
        self._breeder.tell(proposal, cost)

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        self._bookkeeping.steer(points, limits)
        self._proposer.limit(self._bookkeeping.low, self._bookkeeping.high)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        self._bookkeeping.resume(self.tell, observed, pending)
        for proposal in self._bookkeeping.pending.values():
            self._breeder.start(proposal)

    @property
    def n_asked(self) -> int:
        """Number of the next proposal."""
        return self._bookkeeping.n_asked

    @property
    def may_model(self) -> bool:
        """Whether the initial points have been proposed, and there are enough results for a model."""
        return self._bookkeeping.n_asked >= self._n_initial and self._history.n_succeeded >= MIN_FITTED_COSTS

    @property
    def _history(self) -> ObservationHistory:
        return self._breeder.history

    def _n_modelled(self, n_proposed: int) -> int:
        """The number of the next proposals that may take the time of a model, after `n_proposed` in the same call."""
        limit = self._options.await_refit_up_to
        if limit is None:
            return int(min(self._n_affordable - n_proposed, MAX_MODELLED))
        return limit + 1 - len(self._bookkeeping.pending)

    def _modelled_points(self, count: int) -> list[Parameters]:
        """At least one and up to `count` points from a model of all outcomes."""
        rows = self._rows(self._pending_rows(), count)
        return [self._encoding.point(row) for row in rows] or [self._sampler.new_point(self._bookkeeping)]

    def _child(self, n_wanted: int) -> Parameters:
        """The most promising child of the best trials; a random point if none is accepted.

        `n_wanted` is the number of points that are wanted now, this one included.
        """
        # near the optimum, after thousands of trials, nearly every child is near an earlier trial
        child = self._breeder.child(self._bookkeeping.n_asked, self._bookkeeping.permits, n_wanted)
        return self._sampler.new_point(self._bookkeeping) if child is None else child

    def _new_proposer(self) -> Proposer:
        proposer = Proposer(self._encoding, self._seed, self._options.criterion, self._beliefs)
        proposer.limit(self._bookkeeping.low, self._bookkeeping.high)
        return proposer

    def _rows(self, pending: Floats, count: int) -> list[Floats]:
        """Up to `count` rows from a model of all outcomes."""
        observed, number = self._history.observations(), self._bookkeeping.n_asked
        if self._bookkeeping.n_figures > 1:
            return self._search_front(observed, pending, number, count)
        return self._proposer.propose(observed, pending, number, count, self._is_allowed)

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
        return self._breeder.running_rows(sorted(chosen))

    def _is_allowed(self, row: Floats) -> bool:
        return self._bookkeeping.accepts(self._encoding.point(row))
