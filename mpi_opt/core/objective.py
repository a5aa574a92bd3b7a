"""The interface of what a block runs for each trial, and the settings that all trials share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mpi_opt.core.figures_of_merit import Merits
from mpi_opt.core.space import Parameters
from mpi_opt.core.trial import Trial

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator

History = dict[str, list[float]]


@dataclass(frozen=True)
class Terms:
    """What all trials of a study have in common.

    Attributes:
        seed: The study's.
        folds: K.
        timeout_s: How long a trial may take, in seconds; None: for ever.
        sample: Some point of the space, to try the objective's inputs with before the first trial.
        merits: The study's figures of merit.
    """

    seed: int
    folds: int = 1
    timeout_s: float | None = None
    sample: Parameters = field(default_factory=dict)
    merits: Merits = field(default_factory=Merits)


class Objective(ABC):
    """What a block runs."""

    @abstractmethod
    def prepare(self, comm: Communicator, parameters: Parameters) -> None:
        """Loads what all trials need and finds what is wrong with it, before the first trial. Collective over `comm`.

        Args:
            comm: The block's communicator.
            parameters: Some point of the space.

        Raises:
            UserError: Something that every trial would stumble over; may be raised on one rank only.
        """

    @abstractmethod
    def discard(self, study: str, numbers: Iterable[int]) -> None:
        """Removes the checkpoints of trials, as far as they were written on behalf of the strategy. Called on rank 0.

        Args:
            study: The study's key, as ``Trial.study``.
            numbers: The trials.
        """

    @abstractmethod
    def __call__(self, trial: Trial) -> tuple[object, History | None]:
        """Runs one fold of a trial. Collective over ``trial.comm``.

        Returns:
            The figure of merit (that of rank 0 counts), and the values of each metric, one an epoch.
        """
