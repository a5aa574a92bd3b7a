"""The strategy that chooses: a model of all outcomes where it pays, children of the best trials where it does not.

Few blocks or long trials: every proposal comes from a Gaussian process of all outcomes, as in `Bayesian`, because it
saves more trials than it takes time. Many blocks or short trials: the coordinator affords a model for some proposals
only (`afford`), and the others are children of the best trials, as in `Evolutionary`, which also learn from the points
that the model has found.

The measurements are in ``experiments/search_quality`` (``crowd.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

from mpi_opt.core.search_space.space import Limits, Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.bayesian import Bayesian
from mpi_opt.strategies.points.bookkeeping import Options, read_options
from mpi_opt.strategies.strategy import Cost, Strategy

REVIEW_AFTER = 16
"""The choice is reviewed after this number of proposals that may be from a model, and when their number has doubled."""
MOST = 0.9
"""The part of the proposals that counts as all of them in the description of the choice."""


class AutoOptions(Options):
    """The options of `Auto`, which chooses everything else."""


@final
class Auto(Strategy):
    """Wraps a `Bayesian`, and describes how many of its proposals come from the model."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        self._bayesian = Bayesian(space, seed, read_options(AutoOptions, options).model_dump(exclude_defaults=True))
        self._n_affordable = math.inf
        self._n_proposed, self._n_models = 0, 0.0  # since the last review of the choice
        self._review_after = REVIEW_AFTER
        self._choice = "bayesian: blocks need not wait long for a model of all results"
        self._has_reviewed = False

    def expect(self, n_figures: int) -> None:
        self._bayesian.expect(n_figures)

    def afford(self, n_models: float) -> None:
        self._n_affordable = n_models
        self._bayesian.afford(n_models)

    def ask(self, count: int) -> list[Proposal]:
        """`count` proposals: from the model as far as it can be afforded, the others are children."""
        may_model = self._bayesian.may_model
        proposals = self._bayesian.ask(count)
        if may_model:
            self._n_proposed += len(proposals)
            self._n_models += min(self._n_affordable, len(proposals))
        if self._n_proposed >= self._review_after:
            self._review()
        return proposals

    def tell(self, proposal: Proposal, outcome: Cost | Failed) -> None:
        self._bayesian.tell(proposal, outcome)

    def steer(self, points: Sequence[Parameters], limits: Limits) -> None:
        self._bayesian.steer(points, limits)

    def resume(self, observed: Iterable[tuple[Proposal, Cost | Failed]], pending: Iterable[Proposal] = ()) -> None:
        observed = list(observed)
        self._bayesian.resume(observed, pending)
        if observed:
            self._choice = ""  # the durations of the trials decide, and the coordinator has yet to say what they afford

    @property
    def choice(self) -> str:
        # before the first review, this is known only if every proposal may be from the model
        return self._choice if self._has_reviewed or self._n_affordable else ""

    def _review(self) -> None:
        """Describes the choice by the proposals since the last review."""
        self._has_reviewed = True
        part = self._n_models / self._n_proposed
        if part >= MOST:
            self._choice = "bayesian: blocks need not wait long for a model of all results"
        elif part <= 1.0 - MOST:
            self._choice = "evolutionary: with this number of blocks, the trials are too short to wait for a model"
        else:
            self._choice = "bayesian where blocks can wait for a model, else evolutionary: the trials are short"
        self._review_after, self._n_proposed, self._n_models = 2 * self._n_proposed, 0, 0.0
