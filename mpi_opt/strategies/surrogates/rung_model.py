"""New configurations for successive halving from what the longest trainings say (Falkner, Klein and Hutter 2018, BOHB).

The first rung has the most values, and they may mislead: what learns slowly looks bad there. So the model is one of the
values at the highest rung that has enough of them; all other configurations count as pending, so that none comes twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

from mpi_opt.core.space import Parameters, Space
from mpi_opt.core.trial import Failed, Proposal
from mpi_opt.strategies.bayesian import Bayesian
from mpi_opt.strategies.strategy import Cost
from mpi_opt.strategies.surrogates.stock import Stock

FEWEST_VALUES, VALUES_PER_DIMENSION = 8, 2


@final
class RungModel:
    """Proposes by the highest rung that has enough values.

    Args:
        space: The search space.
        seed: What is proposed depends on it.
        options: Of `Bayesian`.
        await_up_to: With at most so many trials pending each proposal has a model of all that is known. With more they
            come from a stock, which a thread prepares anew whenever it is ready: the blocks are too many to wait.
    """

    def __init__(self, space: Space, seed: int, options: Mapping[str, Any], await_up_to: int = 16) -> None:
        self._space, self._seed, self._await_up_to = space, seed, await_up_to
        # a model is asked once, with all that is known then, however many trials are pending
        self._options = dict(options) | {"initial": (), "initial_points": 1, "await_refit_up_to": 10**9}
        self._enough = max(FEWEST_VALUES, VALUES_PER_DIMENSION * len(space))
        self._n_figures = 1
        self._stock: Stock[Parameters] = Stock()

    def expect(self, n_figures: int) -> None:
        """Announces several figures of merit."""
        self._n_figures = n_figures

    def point(
        self, points: Sequence[Parameters], rungs: Sequence[Mapping[int, Cost | None]], n_pending: int
    ) -> Parameters | None:
        """What to try next; None as long as only the first rung has enough values, and when the stock is used up.

        Args:
            points: The configurations so far, by number.
            rungs: Of each rung, the lowest first: configuration -> value, None if it failed.
            n_pending: How many trials have not ended.
        """
        counts = [sum(value is not None for value in values.values()) for values in rungs]
        index = max((i for i, count in enumerate(counts) if count >= self._enough), default=0)
        if index == 0:
            return None
        if n_pending > self._await_up_to:
            return self._prepared(points, rungs, index)
        self._stock.clear()
        return self._made(points, rungs, index, 1)[0]

    def _prepared(
        self, points: Sequence[Parameters], rungs: Sequence[Mapping[int, Cost | None]], index: int
    ) -> Parameters | None:
        """The next of the stock. Takes in what the thread made, and sets it to work again."""
        known = [dict(values) for values in rungs]
        self._stock.refill(lambda stock, count: partial(self._made, [*points, *stock], known, index, count))
        while (point := self._stock.take()) is not None:
            if point not in points:
                return point
        return None

    def _made(
        self, points: Sequence[Parameters], rungs: Sequence[Mapping[int, Cost | None]], index: int, count: int
    ) -> list[Parameters]:
        """The next `count` configurations by a model of the rung `index`."""
        outcomes: dict[int, Cost | Failed] = {n: value for n, value in rungs[index].items() if value is not None}
        for values in rungs:
            outcomes |= {number: Failed("failed") for number, value in values.items() if value is None}
        proposals = [Proposal(number, point) for number, point in enumerate(points)]
        strategy = Bayesian(self._space, seed=self._seed, options=self._options)
        if self._n_figures > 1:
            strategy.expect(self._n_figures)
        strategy.resume(
            [(proposals[number], outcomes[number]) for number in sorted(outcomes)],
            [proposal for proposal in proposals if proposal.number not in outcomes],
        )
        return [proposal.parameters for proposal in strategy.ask(count)]
