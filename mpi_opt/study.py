"""A study as its user looks at it: in Python, in a notebook, from the views. Needs no MPI."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpi_opt.errors import StoreError
from mpi_opt.store import Store
from mpi_opt.trial import TrialRecord

if TYPE_CHECKING:
    import pandas

    from mpi_opt.space import Space
    from mpi_opt.store.records import AttemptRecord, CurveRecord, EventRecord, FoldRecord, StudyRecord


@dataclass(frozen=True)
class Study:
    """A study as it stood when it was read.

    Attributes:
        record: What the store says of the study as a whole.
        trials: All trials, by number.
        store: The store's URL.
    """

    record: StudyRecord
    trials: list[TrialRecord] = field(repr=False)
    store: str = field(repr=False)  # a password may stand in it

    @classmethod
    def open(cls, url: str, name: str) -> Study:
        """Reads the study `name` from the store at `url`.

        Raises:
            StoreError: There is no such store, or no such study in it.
        """
        with Store.open(url, read_only=True) as store:
            return cls.read(store, name)

    @classmethod
    def read(cls, store: Store, name: str) -> Study:
        """Reads the study `name` from an open store.

        Raises:
            StoreError: There is no such study.
        """
        record = store.study(name)
        if record is None:
            names = ", ".join(repr(other.name) for other in store.studies())
            cure = f"the studies there: {names}" if names else "there are no studies in it yet"
            raise StoreError(f"there is no study {name!r}", where=store.url, cure=cure)
        return cls(record, store.trials(record.id), store.address)

    @property
    def name(self) -> str:
        """Its name in the store."""
        return self.record.name

    @property
    def direction(self) -> str:
        """``minimize`` or ``maximize``."""
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
        """The complete trial with the best figure of merit; None as long as there is none."""
        return next(iter(self.ranked(("complete",))), None)

    def ranked(
        self, states: tuple[str, ...] = ("complete", "pruned", "failed", "running", "queued")
    ) -> list[TrialRecord]:
        """The trials in one of `states`: state by state in this order, each with the best figure of merit first."""
        sign = -1.0 if self.record.maximize else 1.0

        def key(trial: TrialRecord) -> tuple[int, bool, float, int]:
            merit = trial.figure_of_merit
            return states.index(trial.state), merit is None, 0.0 if merit is None else sign * merit, trial.number

        return sorted((trial for trial in self.trials if trial.state in states), key=key)

    def dataframe(self) -> pandas.DataFrame:
        """All trials, a row each, by number; a column for each hyperparameter, empty where it was inactive.

        Raises:
            StoreError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise StoreError("a data frame needs pandas", cure="pip install mpi-opt[plots]") from None
        rows = [trial_row(trial, self.space) for trial in self.trials]
        return pandas.DataFrame(rows, columns=trial_columns(self.space))

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

    def _opened(self) -> Store:
        if self.store in ("sqlite://", "sqlite:///:memory:"):
            cure = 'search with a store that stays: store="sqlite:///results.db"'
            raise StoreError("the store was in memory and is gone", where=f"study {self.name}", cure=cure)
        return Store.open(self.store, read_only=True)

    def _repr_html_(self) -> str:
        """For notebooks: the study in a line, its best ten trials as a table."""
        from mpi_opt.views.tables import study_html

        return study_html(self)


def trial_columns(space: Space) -> list[str]:
    """The columns of a table of trials; a hyperparameter named like another column is ``parameter_NAME``."""
    return list(trial_row(TrialRecord(0, "queued", {}), space))


def trial_row(trial: TrialRecord, space: Space) -> dict[str, Any]:
    """A trial as a flat row; hyperparameters that were inactive are None."""
    row = {
        "number": trial.number,
        "state": trial.state,
        "figure_of_merit": trial.figure_of_merit,
        "uncertainty": trial.uncertainty,
        "duration_s": trial.duration_s,
    }
    tail = {
        "started_at": trial.started_at,
        "finished_at": trial.finished_at,
        "attempts": trial.attempts,
        "error": trial.error,
    }
    for name in space:
        column = f"parameter_{name}" if name in row or name in tail else name
        row[column] = trial.parameters.get(name)
    return row | tail
