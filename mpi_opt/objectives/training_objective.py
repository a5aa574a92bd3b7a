"""The objective that trains a model with `mpi_learn`."""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypeVar

from mpi_learn.environment import choose_gpu
from mpi_learn.errors import SavingError
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.mpi.messaging import is_protected
from mpi_learn.settings.suggestions import suggestion
from mpi_learn.settings.user_code import is_function, load_function
from mpi_learn.settings.user_traceback import user_traceback
from mpi_learn.training.configuration import TrainingConfiguration, read_configuration
from mpi_learn.training.sections import AUTO
from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.configuration.placeholders import filled, filled_training
from mpi_opt.core.counted import counted
from mpi_opt.core.figures_of_merit import RESULT_FIGURES, FiguresOfMerit
from mpi_opt.core.objective import CHECKPOINT_S, Choice, MetricCurves, Objective
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.core.trial import Proposal, Trial
from mpi_opt.errors import ConfigurationError, UserError
from mpi_opt.objectives.kept_epochs import KeptEpochs

if TYPE_CHECKING:
    from mpi_learn import Result
    from mpi_learn.data.loading import DatasetCache
    from mpi_learn.data.samples.batches import Dataset
    from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch

T = TypeVar("T")

N_TRIED = 1_000
"""`check` calls functions of figures of merit after a training on this number of samples at most."""


class TrainingObjective(Objective):
    """A training by `mpi_learn`.

    Args:
        training: The section ``training:``, with ``$name`` as the placeholder of a hyperparameter.
        figure_of_merit: The name of a metric, one of `RESULT_FIGURES`, or ``file.py:function``; or several of them.
        directory: Relative paths are relative to this directory.
        checkpoints: The folder of the checkpoints that the strategy needs, so that trials can resume from others.
        n_folds: Number of folds.
        is_elastic: Whether trials may continue on another number of ranks after an epoch; see `Trial.must_leave`.
        models: Where the models of trials are written; None: they are not.
    """

    def __init__(
        self,
        training: Mapping[str, Any],
        figure_of_merit: str | Sequence[str],
        directory: Path,
        checkpoints: Path = Path("checkpoints"),
        n_folds: int = 1,
        models: ModelFolder | None = None,
        *,
        is_elastic: bool = False,
    ) -> None:
        self.training, self.directory, self.n_folds = training, directory, n_folds
        self.figures = (figure_of_merit,) if isinstance(figure_of_merit, str) else tuple(figure_of_merit)
        self.checkpoints, self.models, self.is_elastic = checkpoints, models, is_elastic
        self._cache: DatasetCache | None = None
        self._folded_data: Dataset | None = None
        self._folds: dict[int, Dataset] = {}
        self._functions: dict[str, Callable[[Any], Any]] = {}
        self._is_prepared = False
        self._kept = KeptEpochs()

    @property
    def continues_on_fewer_ranks(self) -> bool:  # type: ignore[override]  # read only
        """Whether all trainings have a total batch, so that their steps do not depend on the number of ranks.

        The stages of a pipeline need a multiple of their number.
        """
        return isinstance(self.training.get("batch_size"), Mapping) and not self.training.get("pipeline")

    def choose(self, choice: Choice) -> None:
        self.training, self.choice = {**self.training, **choice.values}, None

    def prepare(self, comm: Communicator, parameters: Parameters) -> None:
        from mpi_learn import rehearse

        if self.training.get("batch_size") == AUTO:
            from mpi_learn.training.timing.timed_choices import choose_batch_size

            # only `choose` changes the training: other ranks of a later block may not have measured
            size, why = self._prepare(choose_batch_size, comm, parameters)
            self.choice = Choice({"batch_size": size}, why)
        # ranks that continue a trial without a lost one have rehearsed before, on more ranks
        if not (self.continues_on_fewer_ranks and all(comm.allgather(self._is_prepared))):
            self.notes = self._prepare(rehearse, comm, parameters, self.choice)
        self._is_prepared = True

    def check(self, comm: Communicator, parameters: Parameters, figures: FiguresOfMerit) -> str:
        """Trains on one batch, of the first of several folds, and returns a summary. Collective over `comm`.

        Functions of the figures of merit are called once, after a training of one epoch on a part of the samples.

        Raises:
            UserError: The training is invalid, or such a function returns no number.
        """
        from mpi_learn.training.train import check

        trial = Trial(Proposal(0, parameters), comm=comm, study_seed=0, folds=self.n_folds)  # any seed: same sizes

        def check_fold(
            configuration: TrainingConfiguration, comm: Communicator, *, data: Dataset
        ) -> tuple[str, TrainingConfiguration, Dataset]:
            fold = self._fold(data, trial)
            return check(configuration, comm, data=fold), configuration, fold

        summary, configuration, fold = self._prepare(check_fold, comm, parameters)
        return "\n".join([summary, *self._tried_functions(figures, configuration, comm, fold)])

    def _tried_functions(
        self, figures: FiguresOfMerit, configuration: TrainingConfiguration, comm: Communicator, data: Dataset
    ) -> Iterator[str]:
        """Calls each function of a figure of merit; yields a line with what it returns, or the exception."""
        if not self._functions:
            return
        from mpi_learn import train

        few = data.part(N_TRIED, N_TRIED)
        always = configuration.validation.model_copy(update={"every": 1})
        unused: dict[str, Any] = {
            "checkpoint": None,
            "trace": None,
            "early_stopping": None,
            "target": None,
            "callbacks": [],
        }
        after = f"after one epoch on {counted(few.n_training, 'sample')}"
        try:
            short = configuration.model_copy(update={"epochs": 1, "validation": always, **unused})
            result = train(short, comm, data=few)
        except UserError as error:  # for example of `drop_last`, if a batch is larger
            yield f"{'note':<12} no function of a figure of merit was called {after}: {error.problem}"
            return
        for name, function in self._functions.items():
            expected = figures if len(self.figures) == 1 else FiguresOfMerit((name,))
            try:
                value = function(result)
            except Exception as error:  # noqa: BLE001 - of the user
                # no error of the check: the function may need more epochs or samples
                yield f"{'note':<12} {name} failed {after}:\n{indent(user_traceback(error).rstrip(), ' ' * 4)}"
                continue
            try:
                found = expected.read(value)
            except TypeError as error:
                cure = f"correct what {name} returns"
                raise ConfigurationError(str(error), where="figure_of_merit", cure=cure) from None
            except ValueError as error:
                yield f"{'note':<12} {name} {after}: {error}"
            else:
                yield f"{'figure':<12} {name} {' '.join(f'{number:.4g}' for number in found.values())} {after}"

    def __call__(self, trial: Trial) -> tuple[object, MetricCurves | None]:
        from mpi_learn.training.loop import LEFT

        changes = self._changes(trial, filled(self.training, trial.parameters))
        result = self._train_anew_if_unusable(trial, changes)
        trial.has_left = result.stopped_by == LEFT
        if trial.comm.rank != 0 or trial.has_left:
            return None, None
        values = [self._figure(name, result) for name in self.figures]
        if self.models is not None and not trial.was_stopped:
            folder = self.models.of_fold(trial.study, trial.number, trial.fold, trial.attempt)
            _save(folder, self.configuration(trial.parameters, changes), result)
        return values[0] if len(values) == 1 else values, result.history

    def measure(self, trial: Trial, limit_s: float) -> tuple[object, MetricCurves | None]:
        from mpi_learn.training.timing.measure_times import measure_times

        configuration = self.configuration(trial.parameters, {"seed": trial.seed})
        data = self._fold(self._loaded(configuration, trial.comm), trial)
        times = measure_times(configuration, trial.comm, data, limit_s)
        return None, {name: [float(value)] for name, value in asdict(times).items()}

    def _train_anew_if_unusable(self, trial: Trial, changes: dict[str, Any]) -> Result:
        """Trains; a checkpoint of this trial, or of the one from which it resumes, that cannot be read is not used.

        A killed job, or a file system that has lost data, may leave such a file. It costs epochs, but no trial. The
        same holds for a checkpoint of a model or configuration that was changed since then, or of another version,
        unless the user has configured where the trial writes it. All ranks raise the same error.
        """
        from mpi_learn import train
        from mpi_learn.training.checkpoints.checkpoint_file import DamagedCheckpoint, UnusableCheckpoint

        kept = self._kept_epoch(trial)
        while True:
            configuration = self.configuration(trial.parameters, changes)
            data = self._fold(self._loaded(configuration, trial.comm), trial)
            try:
                return train(
                    configuration,
                    trial.comm,
                    data=data,
                    on_begin=lambda: self._report_kept(trial, kept),
                    on_epoch=partial(self._after_epoch, trial, configuration, kept),
                    kept=kept,
                )
            except UnusableCheckpoint as error:
                section = changes.get("checkpoint", {})
                is_own = str(section.get("path")) in error.where
                if error.host_fault or not (is_own or trial.resume_from is not None):
                    raise  # reading may work later; or the user has named the checkpoint
                if is_own and self.training.get("checkpoint") and not isinstance(error, DamagedCheckpoint):
                    raise  # the user decides whether the changed model continues from it
                if is_own and section.get("resume", True):
                    section["resume"] = False
                elif section.pop("start_from", None) is None:
                    raise
                if trial.comm.rank == 0:
                    print(f"trial {trial.number}: {error.where}: {error.problem}; the training begins without it")

    def discard(self, study: str, numbers: Iterable[int]) -> None:
        """Removes the checkpoints of these trials, but no files in a user's own ``checkpoint.path``."""
        if not self.training.get("checkpoint"):
            for number in numbers:
                shutil.rmtree(_folder_of_trial(self.checkpoints, study, number), ignore_errors=True)

    def _figure(self, name: str, result: Result) -> Any:
        if name in self._functions:
            return self._functions[name](result)
        if name in RESULT_FIGURES:
            return getattr(result, name)
        if name not in result.history:  # found before the search unless the model has its own losses and metrics
            cure = suggestion(name, result.history, "it produces")
            problem = f"the training does not produce the metric {name}"
            raise ConfigurationError(problem, where="figure_of_merit", cure=cure)
        values = result.history[name]
        return values[-1 if result.best_epoch is None else result.best_epoch]

    def configuration(
        self, parameters: Parameters, changes: Mapping[str, Any] | None = None, where: str = "training"
    ) -> TrainingConfiguration:
        """The configuration of one trial's training.

        Args:
            parameters: The values of the placeholders.
            changes: Sections that replace those of the file.
            where: The name of the section in errors.

        Raises:
            ConfigurationError: The training is invalid with these hyperparameters.
        """
        content = filled_training(self.training, parameters, self.directory)
        return read_configuration(
            content | dict(changes or {}), directory=self.directory, where=where, is_fold=self.n_folds > 1
        )

    def _prepare(
        self, run: Callable[..., T], comm: Communicator, parameters: Parameters, choice: Choice | None = None
    ) -> T:
        """Loads functions and data, and returns the value of `run` for the training with these hyperparameters."""
        choose_gpu()
        self._functions = {name: load_function(name, self.directory) for name in self.figures if is_function(name)}
        configuration = self.configuration(parameters, None if choice is None else choice.values)
        try:
            return run(configuration, comm, data=self._loaded(configuration, comm))
        except UserError as error:
            raise in_section(error) from error

    def _changes(self, trial: Trial, training: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of `training` that differ between trials: seed, number of epochs, and folders."""
        changes: dict[str, Any] = {"seed": trial.seed}
        if training.get("trace") is not None:
            traces = self.directory / str(training["trace"])
            changes["trace"] = str(_folder_of_trial(traces, trial.study, trial.number, trial.fold))
        if trial.budget is not None:
            changes["epochs"] = max(1, round(trial.budget))
        own = training.get("checkpoint") or {}
        is_needed = trial.budget is not None or trial.resume_from is not None
        if own or is_needed or "checkpoint" not in training:
            base = self.directory / own["path"] if "path" in own else self.checkpoints
            path = _folder_of_trial(base, trial.study, trial.number, trial.fold)
            # a trial that others continue needs its last epoch only, so `every` is larger than any training
            changes["checkpoint"] = {"every": 10**9} | own | {"path": str(path)}
            if "checkpoint" not in training:
                changes["checkpoint"] |= {"interval_s": CHECKPOINT_S, "provisional": not is_needed}
            if trial.resume_from is not None:
                start = _folder_of_trial(base, trial.study, trial.resume_from, trial.fold)
                changes["checkpoint"]["start_from"] = str(start)
        return changes

    def _after_epoch(
        self,
        trial: Trial,
        configuration: TrainingConfiguration,
        kept: KeptEpoch | None,
        epoch: int,
        metrics: dict[str, float],
    ) -> bool:
        if self.figures[0] in metrics:
            trial.report(epoch, metrics[self.figures[0]])
        if self.is_elastic and kept is not None and configuration.total_batch is not None:
            most = configuration.total_batch.most_ranks  # of a fold
            # on fewer ranks than folds, a fold has all of them, otherwise its share: if even the former are not too
            # many for a fold, the trial can have the ranks of all its folds together
            if most >= trial.folds - 1:
                most *= trial.folds
            kept.is_left = trial.must_leave(epoch + 1, configuration.epochs, 1 if kept.is_bound else most)
        return trial.should_stop()

    def _kept_epoch(self, trial: Trial) -> KeptEpoch | None:
        """Where this rank keeps the last epoch of a fold; None if no other rank could continue from it."""
        if not (self.continues_on_fewer_ranks and (self.is_elastic or is_protected())):
            return None
        self._kept.begin(trial.study, trial.number)
        trial.speaks = not trial.is_parallel or trial.fold == self._kept.slowest(trial.folds)
        return self._kept.of(trial.fold)

    def share(self, comm: Communicator, study: str, number: int) -> None:
        self._kept.begin(study, number)
        self._kept.share(comm)

    def _report_kept(self, trial: Trial, kept: KeptEpoch | None) -> None:
        """Reports the epochs that an earlier attempt has finished, as this attempt would if it began again.

        Those of the trial from which it resumes are reported there alone.
        """
        if kept is None:
            return
        for epoch, value in list(enumerate(kept.history.get(self.figures[0], ())))[kept.began :]:
            if not math.isnan(value):
                trial.report(epoch, value)

    def _loaded(self, configuration: TrainingConfiguration, comm: Communicator) -> Dataset:
        """The data, which stays in memory from trial to trial."""
        from mpi_learn.data.loading import DatasetCache

        if configuration.data is None:
            raise ConfigurationError("this section is required", where="data", cure="say which files to train on")
        self._cache = self._cache or DatasetCache()
        return self._cache.load(configuration.data, comm, int(self.training.get("seed", 0)))

    def _fold(self, data: Dataset, trial: Trial) -> Dataset:
        if trial.folds == 1:
            return data
        if self._folded_data is not data:
            self._folded_data, self._folds = data, {}
        if trial.fold not in self._folds:
            labels = data.training_labels()  # empty with `labels: null`
            self._folds[trial.fold] = data.fold(*trial.split(data.n_training, labels[0] if labels else None))
        return self._folds[trial.fold]


def in_section(error: UserError, section: str = "training") -> UserError:
    """An error of a training, with the section in its location: ``training.data.labels``."""
    key = re.split(r"[.:]", error.where)[0]
    if key not in TrainingConfiguration.model_fields:  # a file of the user, or nothing
        return error.at(section)
    return type(error)(error.problem, where=f"{section}.{error.where}", cure=error.cure)


def _save(folder: Path, configuration: TrainingConfiguration, result: Result) -> None:
    """Writes the model of a trial. The folder has its name only when it is complete.

    Raises:
        SavingError: Not even the weights can be written.
    """
    from mpi_learn.training.result import save_result

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as temporary:
        written = Path(temporary, folder.name)
        try:
            save_result(written, configuration, result)
        except SavingError:
            if not any(written.glob("model*")):  # a model that cannot be saved as a whole has its weights saved
                raise
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that a power failure has removed from the store
        written.rename(folder)


def _folder_of_trial(base: Path, study: str, number: int, fold: int | None = None) -> Path:
    """The folder of a trial, or of one of its folds."""
    folder = base / study / f"trial-{number:05d}"
    return folder if fold is None else folder / f"fold-{fold}"
