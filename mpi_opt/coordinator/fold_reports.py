"""Intermediate values of a trial, put together from its folds."""

from __future__ import annotations

from mpi_opt.core.figures_of_merit import Merits


class Reports:
    """The reports on one running trial.

    Folds that run side by side are judged by what they come to, once all have reported a step. Of folds that run in
    turn the first one's values are passed on: when the others run, the decision has been made.

    Args:
        n_groups: How many folds run side by side.
        merits: The study's figures of merit.
    """

    def __init__(self, n_groups: int, merits: Merits | None = None) -> None:
        self.n_groups, self._merits = n_groups, merits or Merits()
        self.reporters: set[int] = set()
        self._values: dict[int, dict[int, float]] = {}

    def take(self, rank: int, fold: int, step: int, value: float) -> float | None:
        """Takes a fold's value of a step; returns the trial's, the one time that it is complete."""
        self.reporters.add(rank)
        values = self._values.setdefault(step, {})
        if len(values) == self.n_groups or fold in values:
            return None
        values[fold] = value
        return self._merits.selected(list(values.values())) if len(values) == self.n_groups else None
