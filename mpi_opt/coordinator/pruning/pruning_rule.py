"""The interface of rules that stop trials because of their intermediate values (``search.pruning``)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import final

from mpi_opt.core.trial import Proposal, TrialRecord
from mpi_opt.store.records import CurveRecord

Values = list[tuple[int, float]]
"""Steps of a trial, and its costs there."""


class PruningRule(ABC):
    """Collects the intermediate values of trials, as costs to be minimised, and decides which trial is stopped.

    A concrete rule compares a running trial with those that have ended. It sees no clock: the same calls give the same
    decisions.

    Args:
        metric: The name with which the store has the values.
        sign: The factor that turns values and figures of merit into costs.
    """

    def __init__(self, metric: str, sign: float) -> None:
        self._metric, self._sign = metric, sign
        self._running: dict[tuple[int, int], Values] = {}  # (trial, attempt) -> in the order in which it has reported

    @abstractmethod
    def is_bad(self, proposal: Proposal, values: Values) -> bool:
        """Whether a trial is stopped because of its `values` so far; a NaN counts as infinity."""

    @abstractmethod
    def learn(self, proposal: Proposal, values: Values, cost: float | None) -> None:
        """Adds a trial that has ended.

        Args:
            proposal: The trial.
            values: At least one, by ascending step.
            cost: The cost of a complete trial; None if it was stopped.
        """

    @abstractmethod
    def forget(self) -> None:
        """Forgets all trials that have ended."""

    @final
    def prunes(self, proposal: Proposal, attempt: int, step: int, cost: float) -> bool:
        """Records an intermediate cost of an attempt of a trial; returns whether the trial is stopped."""
        values = self._running.setdefault((proposal.number, attempt), [])
        values.append((step, math.inf if math.isnan(cost) else cost))
        return self.is_bad(proposal, values)

    @final
    def carry(self, key: tuple[int, int], to: tuple[int, int]) -> None:
        """Makes the values of an attempt those of the attempt that continues it."""
        if (values := self._running.pop(key, None)) is not None:
            self._running[to] = values

    @final
    def end(self, proposal: Proposal, attempt: int, figure_of_merit: float | None) -> None:
        """Forgets an attempt, and compares later trials with it.

        Args:
            proposal: The trial.
            attempt: The number of the attempt.
            figure_of_merit: That of a complete trial; None if it was stopped.
        """
        if values := self._running.pop((proposal.number, attempt), None):
            self._learn(proposal, values, figure_of_merit)

    @final
    def resume(self, ended: Iterable[TrialRecord], curves: Iterable[CurveRecord]) -> None:
        """Starts again with stored trials, in the order in which they ended, and their values of the first fold."""
        self.forget()
        of = {curve.number: curve for curve in curves if curve.fold == 0 and curve.name == self._metric}
        for record in ended:
            if (curve := of.get(record.number)) is not None:
                values = [(step, self._sign * value) for step, value in curve.points() if not math.isnan(value)]
                self._learn(record.proposal, values, record.figure_of_merit if record.state == "complete" else None)

    def _learn(self, proposal: Proposal, values: Values, figure_of_merit: float | None) -> None:
        if values:
            cost = None if figure_of_merit is None else self._sign * figure_of_merit
            self.learn(proposal, sorted(values), cost)
