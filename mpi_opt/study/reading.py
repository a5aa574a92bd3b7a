"""Reads a study from an open store, and decides from its events whether it is finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.collecting import collector_paused
from mpi_opt.core.figures_of_merit import FiguresOfMerit, read_target
from mpi_opt.core.folds.fold_stopping import CompleteTrials
from mpi_opt.core.trial import UNFINISHED, TrialRecord
from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.store.events import SEARCH_EVENTS, SEARCH_FINISHED, SEARCH_STOPPED, STUDY_FINISHED, STUDY_RESUMED
from mpi_opt.store.records import FoldRecord, StudyRecord
from mpi_opt.strategies.make_strategy import CONFIRMATION
from mpi_opt.strategies.strategy import Strategy


def sorted_front(front: Iterable[TrialRecord], figures: FiguresOfMerit) -> list[TrialRecord]:
    """The trials of a Pareto front, sorted by their figures of merit, then by number."""
    return sorted(front, key=lambda trial: (figures.costs(trial.figures_of_merit), trial.number))


def read_record(store: Store, name: str | None) -> StudyRecord:
    """The study `name` without its trials; None for the only study of the store.

    Raises:
        StoreError: There is no such study, or the store has several and `name` is None.
    """
    if name is not None and (study := store.study(name)) is not None:
        return study
    studies = store.studies()
    # the new runs of `search.confirm` are a study of their own, which users did not ask for by name
    searches = [study for study in studies if study.strategy != CONFIRMATION]
    if name is None and len(searches) == 1:
        return searches[0]
    names = [study.name for study in studies]
    if name is not None:
        problem = f"there is no study {name!r}"
        cure = suggestion(name, names, "one of") if names else "the store has no studies yet"
    elif searches:
        names = [study.name for study in searches]
        problem, cure = "the store has several studies", f"add --study with one of: {', '.join(names)}"
    else:
        problem, cure = "the store has no studies yet", "mpi-opt search creates one"
    raise StoreError(problem, where=store.url, cure=cure)


def is_finished(store: Store, record: StudyRecord) -> bool:
    """As `Study.is_finished`."""
    kinds = [event.kind for event in store.events(record.id)]
    latest = next((kind for kind in reversed(kinds) if kind in SEARCH_EVENTS), None)
    if latest in (STUDY_FINISHED, STUDY_RESUMED, SEARCH_STOPPED):
        return latest == STUDY_FINISHED
    # no search runs or continues the study: only a workload system runs trials
    configured = record.configuration.get("search", {})
    has_enough_trials = latest == SEARCH_FINISHED or record.n_ended >= configured.get("trials", 1)
    if has_enough_trials and record.n_ended == record.n_trials:
        return True
    target, figures = read_target(configured.get("target"), record.figures_of_merit), record.figures_of_merit
    if target is None:
        return False
    return any(figures.reaches(target, trial) for trial in store.trials(record.id, ("complete",)))


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

    @collector_paused()
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
