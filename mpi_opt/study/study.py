"""A study and its trials for users: in Python, in a notebook and in the views. Does not need MPI."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpi_opt.core.figures_of_merit import FiguresOfMerit, rank_of_length
from mpi_opt.core.search_space.space import Dimension, Space, Value
from mpi_opt.core.trial import TrialRecord
from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.store import Store
from mpi_opt.store.connecting import is_in_memory, parsed
from mpi_opt.store.records import AttemptRecord, CodeRecord, CurveRecord, EventRecord, FoldRecord, StudyRecord
from mpi_opt.study.asking.asked_trial import AskedTrial
from mpi_opt.study.budgets import training_length_notes
from mpi_opt.study.confirmation import Confirmation, read_confirmation
from mpi_opt.study.presentation import as_html, as_text
from mpi_opt.study.reading import is_finished, read_record, sorted_front
from mpi_opt.study.recommendation import STATES, Recommendation, SortedTrials

if TYPE_CHECKING:
    import pandas

Given = float | Sequence[float] | Mapping[str, float]
"""One figure of merit; or several, in the order of the study or by name."""


@dataclass
class Study:
    """A study at the time at which it was read.

    `ask`, `tell`, `add_trial` and `note` change the study in the store and then read it again.

    Attributes:
        record: The study without its trials.
        trials: All trials, by number.
        store: The store's URL.
        is_finished: Whether all trials have ended, also those of a workload system, or the target is reached, or the
            strategy has no more proposals. After an interrupted search, or a change of ``search.trials`` or
            ``search.target``, it keeps its value until the next search or the next `ask`.
        confirmation: The new runs of the best points at the end of the search (``search.confirm``); None without any.
    """

    record: StudyRecord
    trials: list[TrialRecord] = field(repr=False)
    store: str = field(repr=False)  # may contain a password
    is_finished: bool = False
    confirmation: Confirmation | None = field(default=None, repr=False)
    _asked: set[int] = field(default_factory=set, init=False, repr=False, compare=False)  # by this object
    _sorted: SortedTrials | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def open(cls, url: str | os.PathLike[str], name: str) -> Study:
        """Reads the study `name` from the store at `url`, a URL or the path of an SQLite file.

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
        trials = store.trials(record.id)
        return cls(record, trials, store.address, is_finished(store, record), read_confirmation(store, record, trials))

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        name: str,
        space: Mapping[str, Dimension],
        *,
        trials: int = 50,
        strategy: str = "bayesian",
        direction: str | Sequence[str] = "minimize",
        figure_of_merit: str | Sequence[str] | None = None,
        seed: int = 7,
        options: Mapping[str, Any] | None = None,
        target: float | Sequence[float | None] | None = None,
    ) -> Study:
        """Creates a study whose trials the caller runs, with `ask` and `tell`; reads it if the store has it.

        Args:
            url: A SQLAlchemy URL, or the path of a file that ends in ``.db``.
            name: The name of the study in the store.
            space: As for `mpi_opt.search`; so are the other arguments.

        Raises:
            ConfigurationError: An argument is invalid, such as an unknown strategy, or a store in memory; or the study
                in the store has another space, direction, figure of merit or seed.
            SpaceError: The space is invalid, such as a hyperparameter whose default is outside of its range.
            StoreError: The store cannot be opened or written.
        """
        from mpi_opt.study.asking.by_hand import create_study

        search = {"trials": trials, "strategy": strategy, "seed": seed, "options": options or {}, "target": target}
        named = {} if figure_of_merit is None else {"figure_of_merit": figure_of_merit}
        create_study({"study": name, "store": url, "direction": direction, "search": search} | named, space)
        return cls.open(url, name)

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
        """The recommended trial; None without a complete trial.

        It is the complete trial with the best figure of merit. If the figures of merit are noisy, it is the trial with
        the best expected value instead, see `recommendation`; its `figure_of_merit` remains the one of its run. If the
        best points have run again (``search.confirm``), it is the best of these, see `confirmation`.

        If trials were trained for different numbers of epochs, as by `halving`, it is the best one of those with the
        most epochs: a shorter training may have a better figure of merit, see `ranked`. With several figures of merit:
        the trial of the Pareto front with the best first figure.
        """
        if self.figures_of_merit.are_several:
            return next(iter(self.pareto()), None)
        if self.confirmation is not None and (confirmed := self.confirmation.winner.trial) is not None:
            return confirmed
        if (recommended := self.recommendation) is not None:
            return recommended.trial
        strategy = self.record.strategy
        return min(self.ranked(("complete",)), key=lambda one: rank_of_length(one.budget, strategy), default=None)

    @property
    def recommendation(self) -> Recommendation | None:
        """The trial with the best expected value, by a model of all trials.

        None if the figures of merit are not noisy, are too few to know, or are several per trial.
        """
        return self._sorted_trials().recommendation

    @property
    def figures_of_merit(self) -> FiguresOfMerit:
        """The figures of merit."""
        return self.record.figures_of_merit

    def best_model(self, number: int | None = None) -> Any:
        """The trained model of Keras or PyTorch; a list with one model for each of several folds.

        It is that of the trial with the best figure of merit, also if the figures of merit are noisy and `best` is
        another trial: the figure of merit is that of this very model. The search must have kept it:
        ``search: {keep: best}``.

        Args:
            number: The number of another trial.

        Raises:
            StoreError: No trial is complete, or its model was not kept.
            ModelError: The model cannot be loaded.

        Warns:
            UserWarning: The best trial is not a full training, or a Python file has changed since the trial ran.
        """
        from mpi_opt.study.kept_model import load_models, model_folders
        from mpi_opt.study.user_code import changed_since

        wanted = self.record.best.number if number is None and self.record.best is not None else number
        trial = next((one for one in self.trials if one.number == wanted), None)
        if trial is None:
            problem = "no trial is complete yet" if number is None else f"there is no trial {number}"
            raise StoreError(problem, where=f"study {self.name}", cure="see study.trials")
        folders = model_folders(self.record, self.store, trial)
        with self._open() as store:
            changed = changed_since(store, self.record, trial, files_only=True)
        for note in [*(self.training_length_notes() if number is None else []), *filter(None, [changed])]:
            warnings.warn(note, stacklevel=2)
        return load_models(folders)

    def training_length_notes(self) -> list[str]:
        """Sentences for the user if `best`, or a trial with a better figure of merit, is not a full training."""
        return training_length_notes(self.record, next(iter(self.ranked(("complete",))), None))

    def notes(self) -> list[str]:
        """Sentences for the user about `best`: short trainings, and noise in the figures of merit."""
        advice = None if self.confirmation is not None else self.recommendation
        return [*self.training_length_notes(), *([] if advice is None else [str(advice)])]

    def pareto(self) -> list[TrialRecord]:
        """The Pareto front: the complete trials that no other trial dominates, sorted by the first figure of merit.

        With one figure of merit: the best trial, and those with the same figure of merit.
        """
        if self.figures_of_merit.are_several:
            return sorted_front([trial for trial in self.trials if trial.pareto], self.figures_of_merit)
        ranked = self.ranked(("complete",))
        return [trial for trial in ranked if trial.figure_of_merit == ranked[0].figure_of_merit]

    def ranked(self, states: tuple[str, ...] = STATES, *, finite: bool = False) -> list[TrialRecord]:
        """The trials in one of `states`, sorted by state in this order, then from best to worst.

        Several figures of merit are compared by nondominated sorting: first the Pareto front, then the trials that only
        these dominate, and so on; within such a front by the first figure. With `finite`, that figure must be finite.
        """
        return self._sorted_trials().ranked(states, finite=finite)

    def _sorted_trials(self) -> SortedTrials:
        if self._sorted is None or self._sorted.trials is not self.trials:  # the caller may have assigned others
            self._sorted = SortedTrials(self.record, self.trials)
        return self._sorted

    def ask(self, count: int = 1) -> list[AskedTrial]:
        """Gives out at most `count` trials, which are recorded as running; the caller runs them and calls `tell`.

        Fewer or none are returned when all trials of the study have been given out, the target is reached, or the
        strategy needs results first.

        Raises:
            ConfigurationError: `count` is not a whole number, or the strategy is a class of yours whose
                proposals are invalid.
            StoreError: The store or the study has been removed, or the store cannot be written.

        Warns:
            UserWarning: There are no more trials, but some that another program has asked for are still running.
        """
        from mpi_opt.study.asking import ask_tell, by_hand

        count = by_hand.ResultReader("Study.ask()", self.figures_of_merit).whole_number("count", count)
        if count == 0:
            return []
        asked = ask_tell.ask(by_hand.plan_of(self.record, self.store), count, warnings.warn)
        self._asked.update(proposal["number"] for proposal in asked)
        self._read_again()
        others = [one.number for one in self.trials if one.state == "running" and one.number not in self._asked]
        if others and not asked:
            warnings.warn(by_hand.note_on_running(others), stacklevel=2)
        return [AskedTrial(proposal) for proposal in asked]

    def tell(
        self,
        number: int,
        value: Given | None = None,
        uncertainty: Given | None = None,
        *,
        failed: str | None = None,
        lost: str | None = None,
    ) -> None:
        """Records the result of a trial that `ask` has given out.

        Args:
            number: The number of the trial.
            value: Its figure of merit; with several, a list or a mapping from their names.
            uncertainty: The standard deviation of `value`, in the same form.
            failed: The reason why there is no value, instead of `value`.
            lost: The reason why the trial has not ended and must run again, instead of `value`.

        Raises:
            ConfigurationError: Not exactly one of `value`, `failed` and `lost` is given; `value` is not a finite
                number for each figure of merit; `uncertainty` is negative or without a value.
            StoreError: The trial does not exist, is not running or is run by a search, or the store cannot be written.
        """
        from mpi_opt.study.asking import ask_tell, by_hand

        given = {"value": value, "uncertainty": uncertainty, "failed": failed, "lost": lost}
        result = by_hand.ResultReader("Study.tell()", self.figures_of_merit).read(number, given)
        ask_tell.tell(self.store, self.name, [result])
        self._read_again()

    def add_trial(self, parameters: Mapping[str, Value], value: Given, uncertainty: Given | None = None) -> int:
        """Adds a complete trial that was run elsewhere. It is one of the study's trials; the strategy learns from it.

        If `add_trial`, or `tell`, has already recorded this result for this point, no trial is added: a script that
        adds its known points can run again. A point with another value is another trial.

        Args:
            parameters: The active hyperparameters.
            value: The figure of merit; with several, a list or a mapping from their names.
            uncertainty: The standard deviation of `value`, in the same form.

        Returns:
            The number of the trial, also if the study had it before.

        Raises:
            SpaceError: `parameters` is not a point of the space: a name is missing or unknown, or a value is outside of
                its range.
            ConfigurationError: `value` or `uncertainty` is invalid, as for `tell`; or the strategy learns from its own
                trials only (``halving``, ``population`` and ``reproducible: true``).
            StoreError: The store or the study has been removed, or the store cannot be written.
        """
        from mpi_opt.study.asking import by_hand

        number = by_hand.add_trial(self.record, self.store, parameters, value, uncertainty)
        self._read_again()
        return number

    def note(self, number: int, text: str) -> None:
        """Attaches a note to a trial in place of an earlier one; tables and the report show it. "" removes it.

        Raises:
            ConfigurationError: `number` is not a whole number, or `text` is not a text.
            StoreError: There is no such trial.
        """
        from mpi_opt.study.asking.by_hand import ResultReader

        number = ResultReader("Study.note()", self.figures_of_merit).whole_number("number", number)
        if not isinstance(text, str):
            raise ConfigurationError(f"text: expected a text, found {text!r}", where="Study.note()", cure='write "…"')
        with self._open(read_only=False) as store:
            store.note(self.record.id, number, text)
        self._read_again()

    def _read_again(self) -> None:
        """Takes the present state of the study from the store."""
        with self._open() as store:
            now = Study.read(store, self.name)
        self.record, self.trials = now.record, now.trials
        self.is_finished, self.confirmation = now.is_finished, now.confirmation

    def dataframe(self) -> pandas.DataFrame:
        """All trials as rows, by number, with a column for each hyperparameter.

        Times are UTC. Missing values, such as inactive hyperparameters, are NaN in columns of numbers.

        Raises:
            StoreError: pandas is not installed.
        """
        from mpi_opt.study.presentation import data_frame

        return data_frame(self.record, self.trials)

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

    def codes(self) -> list[CodeRecord]:
        """The codes that the trials ran with, by number (`TrialRecord.code`), read at the time of the call."""
        with self._open() as store:
            return store.codes(self.record.id)

    def _open(self, *, read_only: bool = True) -> Store:
        if is_in_memory(parsed(self.store)):
            cure = 'search with a store in a file: store="sqlite:///results.db"'
            raise StoreError("the store was in memory and no longer exists", where=f"study {self.name}", cure=cure)
        return Store.open(self.store, read_only=read_only)

    def __repr__(self) -> str:
        """The study in a few lines: its store, the states of its trials, the best one, and notes about it."""
        return "\n  ".join((as_text(self.record, self.best, self.store, is_finished=self.is_finished), *self.notes()))

    def _repr_html_(self) -> str:
        """HTML for notebooks: the lines of `repr` about the study, and a table of the best ten trials."""
        return as_html(self.record, self.ranked(("complete",)), repr(self))
