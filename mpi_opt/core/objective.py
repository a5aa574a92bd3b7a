"""The interface of objectives, which blocks run for each trial, and the settings that all trials share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.core.trial import Trial
from mpi_opt.errors import ConfigurationError

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator

MetricCurves = dict[str, list[float]]

NOT_MEASURED = "only trainings can be measured (`objective: train`): a function may do anything in a few seconds"
NUMBER_OF_RANKS = "write the number of ranks per block, as in blocks: {size: 4}"


CHECKPOINT_S = 600.0
"""Trainings without the key ``checkpoint`` write one at this interval, so that long trials continue after an
interruption, in seconds."""


SIGNS_OF_LIFE = 4
"""A rank gives at least this number of signs of life in the time after which a silent one is given up."""

MOST_ALIVE_S = 60.0
"""The longest interval between two signs of life, in seconds."""


@dataclass(frozen=True)
class TrialSettings:
    """The settings that all trials of a study share.

    Attributes:
        seed: The study's seed.
        n_folds: Number of folds.
        timeout_s: Seconds that a trial may take; None for no limit.
        example_parameters: A point of the space, with which the objective is checked before the first trial.
        figures_of_merit: The study's figures of merit.
        silence_s: Time after which a rank without a sign of life is given up, in seconds; None for no limit.
        is_elastic: Whether trials may leave their blocks, to continue on other ranks.
    """

    seed: int
    n_folds: int = 1
    timeout_s: float | None = None
    example_parameters: Parameters = field(default_factory=dict)
    figures_of_merit: FiguresOfMerit = field(default_factory=FiguresOfMerit)
    silence_s: float | None = None
    is_elastic: bool = False

    @property
    def alive_s(self) -> float | None:
        """The interval between two signs of life of a rank, in seconds."""
        return None if self.silence_s is None else min(self.silence_s / SIGNS_OF_LIFE, MOST_ALIVE_S)


@dataclass(frozen=True)
class Choice:
    """What a block has chosen by measurement, for all trials of the study: otherwise these could not be compared.

    Attributes:
        values: Key of the section ``training:`` -> value.
        why: A sentence for the user.
    """

    values: dict[str, Any]
    why: str = ""


class Objective(ABC):
    """The interface of an objective, which a block runs for each trial.

    Attributes:
        continues_on_fewer_ranks: Whether a trial that has lost ranks continues on the others of its block, with the
            same result. Otherwise, it begins again on a block of the same size.
        notes: What a user should know before the first trial, in sentences; complete after `prepare`.
        choice: What `prepare` has chosen; None if there is nothing to choose, or `choose` was called before.
    """

    continues_on_fewer_ranks: bool = False
    notes: tuple[str, ...] = ()
    choice: Choice | None = None

    def choose(self, choice: Choice) -> None:  # noqa: B027 - not every objective has something to choose
        """Takes the choice for all further trials; the same on all ranks of a block."""

    def share(self, comm: Communicator, study: str, number: int) -> None:  # noqa: B027 - not every objective keeps it
        """Gives all ranks what any of them needs to continue all folds of a trial. Collective over `comm`.

        Args:
            comm: The block's communicator.
            study, number: Those of the `Trial`.
        """

    @abstractmethod
    def prepare(self, comm: Communicator, parameters: Parameters) -> None:
        """Loads and checks what all trials need, before the first trial. Collective over `comm`.

        Args:
            comm: The block's communicator.
            parameters: A point of the space.

        Raises:
            UserError: Every trial would fail. May be raised on one rank only.
        """

    @abstractmethod
    def discard(self, study: str, numbers: Iterable[int]) -> None:
        """Removes the checkpoints of trials that were written so that other trials can resume. Called on rank 0.

        Args:
            study: The study's key, as in ``Trial.study``.
            numbers: The numbers of the trials.
        """

    @abstractmethod
    def __call__(self, trial: Trial) -> tuple[object, MetricCurves | None]:
        """Runs one fold of a trial. Collective over ``trial.comm``.

        Returns:
            The figure of merit, of which that of rank 0 is used, and the values of each metric, one per epoch.
        """

    def measure(self, trial: Trial, limit_s: float) -> tuple[object, MetricCurves | None]:
        """Trains for about `limit_s` seconds, to measure times. Collective over ``trial.comm``.

        Returns:
            None, and the name of each time of `TrainingTimes` -> its value.

        Raises:
            ConfigurationError: The objective is no training.
        """
        raise ConfigurationError(NOT_MEASURED, where="objective", cure=NUMBER_OF_RANKS)


@dataclass(frozen=True)
class WorkerPlan:
    """The settings of a search that ranks other than rank 0 need.

    Without the configuration: these ranks need not import its validation, which would make their start longer.

    Attributes:
        objective: What the blocks run.
        settings: The settings that all trials share.
        file_name: The name of files and folders of the study.
    """

    objective: Objective
    settings: TrialSettings
    file_name: str
