"""Decides on rank 0 which models of trials are kept. Workers write the model of each complete trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.core.attempt import Attempt
from mpi_opt.core.figures_of_merit import FiguresOfMerit, rank_of_length

Keep = Literal["best", "all"] | int | None


class KeptModels:
    """The models of the best trials of a search, or of all.

    Trials that were trained for more epochs precede others, as in `Study.best`.

    Args:
        keep: How many models are kept; ``best``: one, with several figures of merit those of the Pareto front. None:
            none are written.
        figures: The figures of merit.
        folder: Where the models are.
        study: The study's key, as in `Trial.study`.
        strategy: The strategy of the search.
    """

    def __init__(self, keep: Keep, figures: FiguresOfMerit, folder: ModelFolder, study: str, strategy: str) -> None:
        self.folder = folder
        self._keep, self._figures, self._study, self._strategy = keep, figures, study, strategy
        self._costs: dict[int, tuple[float, ...]] = {}
        self._lengths: dict[int, float] = {}  # the same trials -> their rank of length

    def resume(self, ended: Sequence[Attempt]) -> list[str]:
        """Continues with the models that earlier searches have kept; only trials with a model compete.

        `ended` are the latest attempts of all trials of the study that have ended. The earlier search may have been
        killed between the commit of an outcome and `take`, whose problems are returned.
        """
        if self._keep is None:
            return []
        numbers, written = self.folder.numbers(self._study), self.folder.written(self._study)
        problems = self.take([one for one in ended if one.number in numbers or (one.number, one.attempt) in written])
        latest = {one.number: one.attempt for one in ended}
        for number, attempt in written:
            if number in latest and attempt != latest[number]:
                self.folder.remove_attempt(self._study, number, attempt)
        return problems

    def take(self, ended: Sequence[Attempt]) -> list[str]:
        """Makes the models of complete trials, whose outcomes are committed, those of the study.

        Removes those of trials that have failed or were pruned, and those that better ones replace.

        Returns:
            The problems with the file system, as text.
        """
        if self._keep is None:
            return []
        removed, problems = set(), []
        for attempt in ended:
            outcome = attempt.result
            if outcome.state == "complete" and outcome.figures_of_merit:
                self._lengths[outcome.number] = rank_of_length(attempt.proposal.budget, self._strategy)
                self._costs[outcome.number] = self._figures.costs(outcome.figures_of_merit)
                problems.append(self.folder.publish(self._study, outcome.number, attempt.attempt))
            else:
                removed.add(outcome.number)
                self.folder.remove_attempt(self._study, outcome.number, attempt.attempt)  # its complete folds
            # the folder is not listed for this: it may have thousands of models
            for earlier in range(1, attempt.attempt):
                self.folder.remove_attempt(self._study, outcome.number, earlier)
        removed |= set(self._costs) - self._chosen()
        self.folder.remove(self._study, removed)
        for number in removed:
            self._costs.pop(number, None)
        return [*filter(None, problems)]

    def _chosen(self) -> set[int]:
        numbers = sorted(self._costs, key=lambda number: (self._lengths[number], self._costs[number], number))
        if self._keep == "all":
            return set(numbers)
        if self._figures.are_several and numbers:
            import numpy as np

            from mpi_opt.core.figures_of_merit import ranks

            fronts = ranks(np.array([self._costs[number] for number in numbers])).tolist()
            return {number for number, front in zip(numbers, fronts, strict=True) if front == 0}
        return set(numbers[: 1 if self._keep == "best" else self._keep])
