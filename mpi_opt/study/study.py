"""A study and its trials for users: in Python, in a notebook and in the views. Does not need MPI."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpi_learn.settings.suggestions import suggestion
from mpi_opt.core.figures_of_merit import FiguresOfMerit, read_target
from mpi_opt.core.space import Space
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.store.connecting import is_in_memory, parsed
from mpi_opt.store.records import AttemptRecord, CurveRecord, EventRecord, FoldRecord, StudyRecord
from mpi_opt.study.trial_table import LAST_COLUMNS, html_table, trial_columns, trial_rows

if TYPE_CHECKING:
    import pandas


STUDY_FINISHED, STUDY_RESUMED, SEARCH_STOPPED = "study_finished", "study_resumed", "search_stopped"
"""Events that a search records: the study is finished; a study continues; a search stopped early.

`ask` records the first two as well.
"""

SEARCH_FINISHED = "search_finished"
"""Event of a search that leaves only trials of a workload system. The study is finished when these have ended."""

CODE_CHANGED = "code_changed"
"""Event: a study continues with other code than before, or a file was edited during a search."""

STRATEGY_FAILED = "strategy_failed"
"""Event: the strategy raised an exception, and the search continues with random points."""

SEARCH_EVENTS = (STUDY_FINISHED, STUDY_RESUMED, SEARCH_STOPPED, SEARCH_FINISHED)
"""The events that decide whether a study is finished; the latest one counts."""

N_SHOWN = 10
"""How many trials a notebook shows."""


@dataclass(frozen=True)
class Study:
    """A study at the time at which it was read.

    Attributes:
        record: The study without its trials.
        trials: All trials, by number.
        store: The store's URL.
        is_finished: Whether all trials have ended, also those of a workload system, or the target is reached, or the
            strategy has no more proposals. After an interrupted search, or a change of ``search.trials`` or
            ``search.target``, it keeps its value until the next search or the next `ask`.
    """

    record: StudyRecord
    trials: list[TrialRecord] = field(repr=False)
    store: str = field(repr=False)  # may contain a password
    is_finished: bool = False

    @classmethod
    def open(cls, url: str, name: str) -> Study:
        """Reads the study `name` from the store at `url`.

        Raises:
            StoreError: There is no such store, or no such study in it.
        """
        with Store.open(url, read_only=True) as store:
            return cls.read(store, name)

    @classmethod
    def read(cls, store: Store, name: str | None) -> Study:
        """Reads the study `name` from an open store; None for the only study of the store.

        Raises:
            StoreError: There is no such study, or the store has several and `name` is None.
        """
        record = read_record(store, name)
        return cls(record, store.trials(record.id), store.address, is_finished(store, record))

    @property
    def name(self) -> str:
        """The name in the store."""
        return self.record.name

    @property
    def direction(self) -> str:
        """``minimize`` or ``maximize``; with several figures of merit the direction of the first."""
        return self.record.direction

    @property
    def space(self) -> Space:
        """The search space."""
        return self.record.space

    @property
    def view(self) -> str:
        """The name of the SQL view."""
        return self.record.view

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration of the search, the effective YAML."""
        return self.record.configuration

    @property
    def best(self) -> TrialRecord | None:
        """The complete trial with the best figure of merit; None without a complete trial.

        With several figures of merit: the trial of the Pareto front with the best first figure.
        """
        found = self.pareto() if self.figures_of_merit.are_several else self.ranked(("complete",))
        return next(iter(found), None)

    @property
    def figures_of_merit(self) -> FiguresOfMerit:
        """The figures of merit."""
        return self.record.figures_of_merit

    def pareto(self) -> list[TrialRecord]:
        """The Pareto front: the complete trials that no other trial dominates, sorted by the first figure of merit.

        With one figure of merit: the best trial, and those with the same figure of merit.
        """
        if self.figures_of_merit.are_several:
            return sorted_front([trial for trial in self.trials if trial.pareto], self.figures_of_merit)
        ranked = self.ranked(("complete",))
        return [trial for trial in ranked if trial.figure_of_merit == ranked[0].figure_of_merit]

    def ranked(
        self, states: tuple[str, ...] = ("complete", "pruned", "failed", "running", "queued")
    ) -> list[TrialRecord]:
        """The trials in one of `states`, sorted by state in this order, then from best to worst.

        Several figures of merit are compared by nondominated sorting: first the trials of the Pareto front, then those
        that only these dominate, and so on; within such a front by the first figure.
        """
        chosen = [trial for trial in self.trials if trial.state in states]
        rank = self._ranks(chosen)

        def key(trial: TrialRecord) -> tuple[int, int, bool, tuple[float, ...], int]:
            costs = self._costs(trial)
            return states.index(trial.state), rank.get(trial.number, len(chosen)), not costs, costs, trial.number

        return sorted(chosen, key=key)

    def dataframe(self) -> pandas.DataFrame:
        """All trials as rows, by number, with a column for each hyperparameter; inactive ones are missing values.

        Raises:
            StoreError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise StoreError("a data frame needs pandas", cure="pip install mpi-opt[plots]") from None
        rows = trial_rows(self.trials, self.record)
        return pandas.DataFrame(rows, columns=trial_columns(self.record))

    def folds(self, numbers: Sequence[int] | None = None) -> list[FoldRecord]:
        """The folds of the trials `numbers` (None: all), read from the store at the time of the call."""
        with self._open() as store:
            return store.folds(self.record.id, numbers)

    def curves(self, numbers: Sequence[int] | None = None) -> list[CurveRecord]:
        """The metrics of the trials `numbers` (None: all) per epoch, read from the store at the time of the call."""
        with self._open() as store:
            return store.curves(self.record.id, numbers)

    def attempts(self, numbers: Sequence[int] | None = None) -> list[AttemptRecord]:
        """The attempts to run the trials `numbers` (None: all), read from the store at the time of the call."""
        with self._open() as store:
            return store.attempts(self.record.id, numbers)

    def events(self) -> list[EventRecord]:
        """The events of the search, read from the store at the time of the call."""
        with self._open() as store:
            return store.events(self.record.id)

    def _costs(self, trial: TrialRecord) -> tuple[float, ...]:
        """The figures of merit of a trial as values to be minimised; empty if the trial has none."""
        return () if trial.figure_of_merit is None else self.figures_of_merit.costs(self.figures_of_merit.values(trial))

    def _ranks(self, trials: list[TrialRecord]) -> dict[int, int]:
        """Trial number -> its front among the trials of its state, 0 for the Pareto front.

        Trials without a figure of merit are left out; with one figure of merit all are.
        """
        if not self.figures_of_merit.are_several:
            return {}
        import numpy as np

        from mpi_opt.core.pareto import ranks

        found: dict[int, int] = {}
        for state in {trial.state for trial in trials}:
            known = {t.number: self._costs(t) for t in trials if t.state == state and t.figure_of_merit is not None}
            if known:
                found |= dict(zip(known, ranks(np.array(list(known.values()))).tolist(), strict=True))
        return found

    def _open(self) -> Store:
        if is_in_memory(parsed(self.store)):
            cure = 'search with a store in a file: store="sqlite:///results.db"'
            raise StoreError("the store was in memory and no longer exists", where=f"study {self.name}", cure=cure)
        return Store.open(self.store, read_only=True)

    def _repr_html_(self) -> str:
        """HTML for notebooks: one line about the study and a table of the best ten trials."""
        counts = ", ".join(f"{n} {state}" for state, n in self.record.counts.items()) or "no trials"
        method = html.escape(f"{self.direction}, {self.record.strategy}")
        columns = trial_columns(self.record, without=LAST_COLUMNS)
        rows = trial_rows(self.ranked(("complete",))[:N_SHOWN], self.record)
        return f"<div><b>{html.escape(self.name)}</b>: {counts}; {method}{html_table(columns, rows)}</div>"


def sorted_front(front: Iterable[TrialRecord], figures: FiguresOfMerit) -> list[TrialRecord]:
    """The trials of a Pareto front, sorted by their figures of merit, then by number."""
    return sorted(front, key=lambda trial: (figures.costs(figures.values(trial)), trial.number))


def read_record(store: Store, name: str | None) -> StudyRecord:
    """The study `name` without its trials; None for the only study of the store.

    Raises:
        StoreError: There is no such study, or the store has several and `name` is None.
    """
    if name is not None and (study := store.study(name)) is not None:
        return study
    studies = store.studies()
    if name is None and len(studies) == 1:
        return studies[0]
    names = [study.name for study in studies]
    if name is not None:
        problem = f"there is no study {name!r}"
        cure = suggestion(name, names, "one of") if names else "the store has no studies yet"
    elif names:
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
