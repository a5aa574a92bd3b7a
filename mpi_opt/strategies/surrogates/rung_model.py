"""New configurations for successive halving, from a model of the costs of the longest trainings.

As in BOHB (Falkner, Klein and Hutter, ICML 2018, section 4), the model uses the costs of the highest rung that has
enough of them. The first rung has the most costs, but they may mislead: a configuration that learns slowly looks bad
there. All other configurations count as pending, so that none is proposed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.bayesian import Bayesian
from mpi_opt.strategies.strategy import Cost
from mpi_opt.strategies.surrogates.proposing.prepared_proposals import PreparedProposals

MIN_COSTS, COSTS_PER_DIMENSION = 8, 2
"""A rung has enough costs if it has at least both `MIN_COSTS` and `COSTS_PER_DIMENSION` per hyperparameter."""


@final
class RungModel:
    """Proposes configurations from the highest rung that has enough costs.

    With at most `await_up_to` trials pending, each proposal uses all outcomes. With more, proposals are prepared in the
    background. `options` are those of `Bayesian`.
    """

    def __init__(self, space: Space, seed: int, options: Mapping[str, Any], await_up_to: int = 16) -> None:
        self._space, self._seed, self._await_up_to = space, seed, await_up_to
        # each model proposes once, with all outcomes at that time, however many trials are pending
        self._options = dict(options) | {"initial": (), "initial_points": 1, "await_refit_up_to": 10**9}
        self._enough = max(MIN_COSTS, COSTS_PER_DIMENSION * len(space))
        self._n_figures = 1
        self._prepared: PreparedProposals[Parameters] = PreparedProposals()

    def expect(self, n_figures: int) -> None:
        """As `Strategy.expect`."""
        self._n_figures = n_figures

    def point(
        self, points: Sequence[Parameters], rungs: Sequence[Mapping[int, Cost | None]], n_pending: int
    ) -> Parameters | None:
        """The next point.

        None if no rung above the first has enough costs yet, or if more than `await_up_to` trials are pending and no
        prepared point is left.

        Args:
            points: The configurations so far, by number.
            rungs: Configuration to cost for each rung, the lowest first; None for a failed trial.
            n_pending: Number of trials that have not ended.
        """
        counts = [sum(cost is not None for cost in costs.values()) for costs in rungs]
        index = max((i for i, count in enumerate(counts) if count >= self._enough), default=0)
        if index == 0:
            return None
        if n_pending <= self._await_up_to:
            self._prepared.clear()
            return self._proposed(points, rungs, index, 1)[0]
        known = [dict(costs) for costs in rungs]
        self._prepared.refill(
            lambda prepared, count: partial(self._proposed, [*points, *prepared], known, index, count)
        )
        while (point := self._prepared.pop()) is not None:
            if point not in points:
                return point
        return None

    def _proposed(
        self, points: Sequence[Parameters], rungs: Sequence[Mapping[int, Cost | None]], index: int, count: int
    ) -> list[Parameters]:
        """`count` configurations from a model of rung `index`."""
        outcomes = _outcomes(rungs, index)
        proposals = [Proposal(number, point) for number, point in enumerate(points)]
        strategy = Bayesian(self._space, seed=self._seed, options=self._options)
        if self._n_figures > 1:
            strategy.expect(self._n_figures)
        strategy.resume(
            [(proposals[number], outcomes[number]) for number in sorted(outcomes)],
            [proposal for proposal in proposals if proposal.number not in outcomes],
        )
        return [proposal.parameters for proposal in strategy.ask(count)]


def _outcomes(rungs: Sequence[Mapping[int, Cost | None]], index: int) -> dict[int, Cost | Failed]:
    """Configuration to its cost on rung `index`, or to `Failed` if its trial failed on any rung."""
    outcomes: dict[int, Cost | Failed] = {number: cost for number, cost in rungs[index].items() if cost is not None}
    for costs in rungs:
        outcomes |= {number: Failed("failed") for number, cost in costs.items() if cost is None}
    return outcomes
