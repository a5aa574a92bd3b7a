"""New configurations for successive halving from what the longest trainings say (Falkner, Klein and Hutter 2018, BOHB).

The first rung has the most values, and they may mislead: what learns slowly looks bad there. So the model is one of the
values at the highest rung that has enough of them; all other configurations count as pending, so that none comes twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from mpi_opt.space import Parameters, Space
from mpi_opt.strategies.bayesian import Bayesian
from mpi_opt.strategies.strategy import Cost
from mpi_opt.trial import Failed, Proposal

FEWEST_VALUES, VALUES_PER_DIMENSION = 8, 2
GROWTH = 1.05
"""With many trials pending a model serves until its rung has so many times the values that it knows."""


@final
class RungModel:
    """Proposes by the highest rung that has enough values.

    Args:
        space: The search space.
        seed: What is proposed depends on it.
        options: Of `Bayesian`.
        await_up_to: With at most so many trials pending each proposal has a model of all that is known.
    """

    def __init__(self, space: Space, seed: int, options: Mapping[str, Any], await_up_to: int = 16) -> None:
        self._space, self._seed, self._await_up_to = space, seed, await_up_to
        # it is asked because a block waits: the model is made with all that is known, however many trials are pending
        self._options = dict(options) | {"initial": (), "initial_points": 1, "await_refit_up_to": 10**9}
        self._enough = max(FEWEST_VALUES, VALUES_PER_DIMENSION * len(space))
        self._made_of: tuple[int, int] = (-1, 0)
        self._strategy: Bayesian | None = None
        self._n_merits = 1

    def expect(self, n_merits: int) -> None:
        """There are several figures of merit."""
        self._n_merits = n_merits

    def point(
        self, points: Sequence[Parameters], rungs: Sequence[Mapping[int, Cost | None]], n_pending: int
    ) -> Parameters | None:
        """What to try next; None as long as only the first rung has enough values.

        Args:
            points: The configurations so far, by number.
            rungs: Of each rung, the lowest first: configuration -> value, None if it failed.
            n_pending: How many trials have not ended.
        """
        counts = [sum(value is not None for value in values.values()) for values in rungs]
        index = max((i for i, count in enumerate(counts) if count >= self._enough), default=0)
        if index == 0:
            return None
        is_old = index != self._made_of[0] or counts[index] > GROWTH * self._made_of[1]
        if self._strategy is None or n_pending <= self._await_up_to or is_old:
            self._strategy, self._made_of = self._made(points, rungs, index), (index, counts[index])
        (proposal,) = self._strategy.ask(1)
        return proposal.parameters

    def _made(self, points: Sequence[Parameters], rungs: Sequence[Mapping[int, Cost | None]], index: int) -> Bayesian:
        outcomes: dict[int, Cost | Failed] = {n: value for n, value in rungs[index].items() if value is not None}
        for values in rungs:
            outcomes |= {number: Failed("failed") for number, value in values.items() if value is None}
        proposals = [Proposal(number, point) for number, point in enumerate(points)]
        strategy = Bayesian(self._space, seed=self._seed, options=self._options)
        if self._n_merits > 1:
            strategy.expect(self._n_merits)
        strategy.resume(
            [(proposals[number], outcomes[number]) for number in sorted(outcomes)],
            [proposal for proposal in proposals if proposal.number not in outcomes],
        )
        return strategy
