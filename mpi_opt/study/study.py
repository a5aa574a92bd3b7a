"""A study as its user looks at it: in Python, in a notebook, from the views. Needs no MPI."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpi_opt.core.trial import FINISHED, TrialRecord
from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.study.trial_table import html_table, trial_columns, trial_row

if TYPE_CHECKING:
    import pandas

    from mpi_opt.core.figures_of_merit import Merits
    from mpi_opt.core.space import Space
    from mpi_opt.store.records import AttemptRecord, CurveRecord, EventRecord, FoldRecord, StudyRecord


STUDY_FINISHED, STUDY_RESUMED, SEARCH_STOPPED = "study_finished", "study_resumed", "search_stopped"
"""Events that a search records: it came to its end; it continues a study; it ended before the study was finished."""

N_SHOWN = 10
"""How many trials a notebook shows."""


@dataclass(frozen=True)
class Study:
    """A study as it stood when it was read.

    Attributes:
        record: What the store says of the study as a whole.
        trials: All trials, by number.
        store: The store's URL.
        is_finished: Whether the last search of the study came to its end: all trials have ended, the target was
            reached, or the strategy has no more proposals. Where no search ran (`ask` and `tell`): whether as many
            trials have ended as the configuration says.
    """

    record: StudyRecord
    trials: list[TrialRecord] = field(repr=False)
    store: str = field(repr=False)  # a password may stand in it
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
    def read(cls, store: Store, name: str, *, trials: bool = True) -> Study:
        """Reads the study `name` from an open store.

        Args:
            store: Open.
            name: The study's name.
            trials: Whether to read the trials; without them the study only describes itself.

        Raises:
            StoreError: There is no such study.
        """
        record = store.study(name)
        if record is None:
            names = ", ".join(repr(other.name) for other in store.studies())
            cure = f"its studies: {names}" if names else "there are no studies in it yet"
            raise StoreError(f"there is no study {name!r}", where=store.url, cure=cure)
        return cls(record, store.trials(record.id) if trials else [], store.address, _is_finished(store, record))

    @property
    def name(self) -> str:
        """Its name in the store."""
        return self.record.name

    @property
    def direction(self) -> str:
        """``minimize`` or ``maximize``; of several figures of merit that of the first."""
        return self.record.direction

    @property
    def space(self) -> Space:
        """The search space."""
        return self.record.space

    @property
    def view(self) -> str:
        """The name of its SQL view."""
        return self.record.view

    @property
    def configuration(self) -> dict[str, Any]:
        """What the search was told to do."""
        return self.record.configuration

    @property
    def best(self) -> TrialRecord | None:
        """The complete trial with the best figure of merit; None as long as there is none.

        With several figures of merit it is the trial of the Pareto front that has the best first figure.
        """
        return next(iter(self.ranked(("complete",))), None)

    @property
    def merits(self) -> Merits:
        """The figures of merit."""
        return self.record.merits

    def pareto(self) -> list[TrialRecord]:
        """The Pareto front: the complete trials that no other one dominates, the best first figure first.

        With one figure of merit: the best trials, of which there are several only if they are equally good.
        """
        if self.merits.are_several:
            return [trial for trial in self.ranked(("complete",)) if trial.pareto]
        ranked = self.ranked(("complete",))
        return [trial for trial in ranked if trial.figure_of_merit == ranked[0].figure_of_merit]

    def ranked(
        self, states: tuple[str, ...] = ("complete", "pruned", "failed", "running", "queued")
    ) -> list[TrialRecord]:
        """The trials in one of `states`: state by state in this order, each with the best figure of merit first.

        With several figures of merit those of the Pareto front come first in their state, then those that only they
        dominate, and so on; among these the best first figure.
        """
        chosen = [trial for trial in self.trials if trial.state in states]
        rank = self._ranks(chosen)

        def key(trial: TrialRecord) -> tuple[int, int, bool, tuple[float, ...], int]:
            value = () if trial.figure_of_merit is None else self._minimised(trial)
            return states.index(trial.state), rank.get(trial.number, 0), not value, value, trial.number

        return sorted(chosen, key=key)

    def dataframe(self) -> pandas.DataFrame:
        """All trials, a row each, by number; a column for each hyperparameter, empty where it was inactive.

        Raises:
            StoreError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise StoreError("a data frame needs pandas", cure="pip install mpi-opt[plots]") from None
        rows = [trial_row(trial, self.space, self.merits) for trial in self.trials]
        return pandas.DataFrame(rows, columns=trial_columns(self.space, self.merits))

    def folds(self, numbers: list[int] | None = None) -> list[FoldRecord]:
        """The folds of the trials `numbers` (None: of all), read from the store now."""
        with self._opened() as store:
            return store.folds(self.record.id, numbers)

    def curves(self, numbers: list[int] | None = None) -> list[CurveRecord]:
        """The metrics of the trials `numbers` (None: of all), epoch by epoch, read from the store now."""
        with self._opened() as store:
            return store.curves(self.record.id, numbers)

    def attempts(self, numbers: list[int] | None = None) -> list[AttemptRecord]:
        """Which block ran the trials `numbers` (None: all) when, read from the store now."""
        with self._opened() as store:
            return store.attempts(self.record.id, numbers)

    def events(self) -> list[EventRecord]:
        """What happened to the search, read from the store now."""
        with self._opened() as store:
            return store.events(self.record.id)

    def _minimised(self, trial: TrialRecord) -> tuple[float, ...]:
        """All figures of merit of a trial that has them, as values to minimize."""
        if not self.merits.are_several:
            return (self.merits.sign * trial.figure_of_merit,)
        pairs = zip(self.merits.names, self.merits.signs, strict=True)
        return tuple(sign * trial.figures_of_merit.get(name, trial.figure_of_merit) for name, sign in pairs)

    def _ranks(self, trials: list[TrialRecord]) -> dict[int, int]:
        """Trial number -> its rank among those of its state, 0 on the front; empty with one figure of merit."""
        if not self.merits.are_several:
            return {}
        from mpi_opt.core.pareto import ranks

        found: dict[int, int] = {}
        for state in {trial.state for trial in trials}:
            known = [t for t in trials if t.state == state and t.figure_of_merit is not None]
            if known:
                of_state = ranks([self._minimised(trial) for trial in known])
                found |= {t.number: int(rank) for t, rank in zip(known, of_state, strict=True)}
            worst = max(found.values(), default=0)
            found |= {t.number: worst + 1 for t in trials if t.state == state and t.figure_of_merit is None}
        return found

    def _opened(self) -> Store:
        if self.store in ("sqlite://", "sqlite:///:memory:"):
            cure = 'search with a store that stays: store="sqlite:///results.db"'
            raise StoreError("the store was in memory and is gone", where=f"study {self.name}", cure=cure)
        return Store.open(self.store, read_only=True)

    def _repr_html_(self) -> str:
        """For notebooks: the study in a line, its best ten trials as a table."""
        counts = ", ".join(f"{n} {state}" for state, n in self.record.counts.items()) or "no trials"
        method = html.escape(f"{self.direction}, {self.record.strategy}")
        left_out = ("started_at", "finished_at", "attempts", "error")
        columns = [column for column in trial_columns(self.space, self.merits) if column not in left_out]
        rows = [trial_row(trial, self.space, self.merits) for trial in self.ranked(("complete",))[:N_SHOWN]]
        return f"<div><b>{html.escape(self.name)}</b>: {counts}; {method}{html_table(columns, rows)}</div>"


def _is_finished(store: Store, record: StudyRecord) -> bool:
    kinds = [event.kind for event in store.events(record.id)]
    searches = [kind for kind in kinds if kind in (STUDY_FINISHED, STUDY_RESUMED, SEARCH_STOPPED)]
    if searches:
        return searches[-1] == STUDY_FINISHED
    n_ended = sum(record.counts.get(state, 0) for state in FINISHED)
    return n_ended >= record.configuration.get("search", {}).get("trials", 1)
