"""The trials of a study in the store, which a search or a workload system continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mpi_opt.core.folds.fold_stopping import CompleteTrials
from mpi_opt.core.merit.figures_of_merit import FiguresOfMerit
from mpi_opt.core.trial import UNFINISHED, TrialRecord
from mpi_opt.store import Store
from mpi_opt.store.records import FoldRecord
from mpi_opt.strategies.strategy import Strategy

EXTERNAL_RANKS, EXTERNAL_BLOCK = "external", -1
"""The values of ``attempts.ranks`` and ``attempts.block`` in the store for a trial that a workload system runs."""


@dataclass(frozen=True)
class PastTrials:
    """The trials of a study so far.

    Attributes:
        ended: The finished trials, in the order in which they ended.
        unfinished: The trials that are queued or running, by number.
        figures_of_merit: The figures of merit of the study.
        n_folds: The number of folds, K.
        external: The numbers of the trials that a workload system runs.
    """

    ended: list[TrialRecord]
    unfinished: list[TrialRecord]
    figures_of_merit: FiguresOfMerit
    n_folds: int
    external: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.ended) + len(self.unfinished)

    def __str__(self) -> str:
        n_queued, n_external = len(self.unfinished) - len(self.external), len(self.external)
        counts = f"{len(self.ended)} finished, {n_queued} queued"
        return f"{counts}, {n_external} run externally" if n_external else counts

    @classmethod
    def read(cls, store: Store, study_id: int, figures_of_merit: FiguresOfMerit, n_folds: int) -> PastTrials:
        """Reads the trials of a study from the store."""
        unfinished = store.trials(study_id, UNFINISHED)
        running = [record.number for record in unfinished if record.state == "running"]
        latest = {attempt.number: attempt.ranks for attempt in store.attempts(study_id, running)}
        external = frozenset(number for number, ranks in latest.items() if ranks == EXTERNAL_RANKS)
        ended = store.ended_trials(study_id)
        numbers = {record.number for record in ended}  # a workload system may have reported one between the two queries
        unfinished = [record for record in unfinished if record.number not in numbers]
        return cls(ended, unfinished, figures_of_merit, n_folds, external - numbers)

    def replay(self, strategy: Strategy) -> None:
        """Passes all trials to a new strategy."""
        ended = [(record.proposal, self.figures_of_merit.measured_cost(record, self.n_folds)) for record in self.ended]
        strategy.resume(ended, [record.proposal for record in self.unfinished])

    def add_complete(self, complete_trials: CompleteTrials, folds: Iterable[FoldRecord]) -> None:
        """Adds the complete trials and their folds to `complete_trials`."""
        by_trial: dict[int, dict[int, float | None]] = {}
        for fold in folds:
            by_trial.setdefault(fold.number, {})[fold.fold] = fold.figure_of_merit
        for record in self.ended:
            if record.state == "complete" and record.figure_of_merit is not None:
                complete_trials.add(record.proposal, record.figure_of_merit, by_trial.get(record.number, {}))
