"""Aggregates the intermediate values of the folds of a trial."""

from __future__ import annotations

from mpi_opt.core.figures_of_merit import FiguresOfMerit


class IntermediateValues:
    """The intermediate values of one running trial.

    If folds run in parallel, their values of a step are aggregated once all of them have reported it. If folds run one
    after the other, only the values of the first one are used. Of several values of one step, the first one is used.

    Attributes:
        n_groups: Number of folds that run in parallel.
        has_repeated_step: Whether a fold has reported several values for one step, in one attempt.
        is_carried: Whether they are also those of earlier attempts, which the present one reports again.
        is_pruned: Whether the trial must stop because of one of them.
    """

    def __init__(self, n_groups: int, figures: FiguresOfMerit) -> None:
        self.n_groups, self._figures = n_groups, figures
        self._values: dict[int, dict[int, float]] = {}
        self._only_fold: int | None = None  # with folds one after the other
        self.has_repeated_step = self.is_carried = self.is_pruned = False

    def add(self, fold: int, step: int, value: float) -> float | None:
        """Records the value of a fold; returns the value of the trial once, when all parallel folds have reported."""
        self._only_fold = fold if self._only_fold is None else self._only_fold
        if self.n_groups == 1 and fold != self._only_fold:  # the first fold may have ended after fewer steps
            return None
        values = self._values.setdefault(step, {})
        if fold in values:
            self.has_repeated_step |= not self.is_carried
            return None
        values[fold] = value
        return self._figures.aggregate(list(values.values())) if len(values) == self.n_groups else None
