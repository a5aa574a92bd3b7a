"""The interface of a training algorithm, and the arguments from which it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mpi_learn.algorithms.rank_layout import RankLayout
from mpi_learn.devices.device_vector import DeviceVector
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.network import ModelState
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.optimizers.configuration import AnyOptimizer
from mpi_learn.optimizers.optimizer import Optimizer

Deal = Callable[[], slice | None]
"""Returns the next samples of an epoch, as positions in the epoch's order; None when all have been dealt."""
MakeOptimizer = Callable[[AnyOptimizer | None, float], Optimizer]
"""(options, or None for the configured optimizer; updates per epoch) -> optimizer."""


class SampleDealing(Protocol):
    """The capability to give each worker its next samples when it has finished the previous ones."""

    def next_part(self) -> slice | None:
        """This worker's next samples in the epoch's order; None when all have been dealt. Waits for the dealer."""


@dataclass(frozen=True)
class AlgorithmSetup:
    """The arguments from which every algorithm is built.

    Attributes:
        comm: The ranks that hold the same weights (`TrainingContext.peers`).
        rank_layout: The roles of the ranks.
        weights: The model's weights, (n,) float32, changed in place. A master has no model: the weights that it serves.
        weights_layout: The layout of the weights, with or without counts.
        n_sums: Number of sums that follow the gradient in a step vector.
        n_steps: Steps of a worker per epoch, the same on all workers; with `make_deal` their mean.
        learning_rate: The configured learning rate; 0 for an optimizer of a framework.
        make_optimizer: Builds an optimizer with its learning rate schedule.
        make_deal: Begins to deal out the samples of an epoch; None: every worker has a fixed share.
        batch_statistics: Its floats are averaged over the ranks in every step; None: only after each epoch.
        step_dtype: The dtype of step vectors: float32, or float64 for those of shards, which only allreduce sums.
        on_device: The weights on a device, if the steps of the training are `DeviceVector`s. The algorithm changes
            these, and `weights` have their values only between two epochs.
    """

    comm: Communicator
    rank_layout: RankLayout
    weights: np.ndarray
    weights_layout: FlatLayout
    n_sums: int
    n_steps: int
    learning_rate: float
    make_optimizer: MakeOptimizer
    make_deal: Callable[[], Deal] | None = None
    batch_statistics: ModelState | None = None
    step_dtype: type[np.floating[Any]] = np.float32
    on_device: DeviceVector | None = None

    @property
    def n(self) -> int:
        """Number of weights."""
        return self.weights.size


class Algorithm(ABC):
    """One rank's part in a training algorithm.

    Every epoch, all ranks of the training call `run`, agree on whether one of them failed, and call `synchronize`.

    Attributes:
        dealing: Returns the next samples of this worker, if samples are dealt out during an epoch; else None.
    """

    dealing: SampleDealing | None = None

    @abstractmethod
    def run(self, steps: Iterable[np.ndarray]) -> None:
        """The steps of one epoch. Changes the weights in place.

        If a rank fails, the other ranks leave the epoch early and return as usual: the ranks agree on errors
        afterwards.

        Args:
            steps: The worker's step vectors, (n + sums,) float32 (with shards float64, on a GPU a `DeviceVector`), each
                computed from the current weights when it is requested; their content is lost (see
                `mpi_learn.flat_layout`). Not used on a master, which returns when all its workers have finished.

        Raises:
            Exception: The exception that `steps` raises, after it has been reported to the other ranks.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Gives every rank the weights that are validated and saved. Collective, once per epoch."""

    def finalize(self) -> None:  # noqa: B027 - most optimizers end with the weights of their last step
        """Replaces the weights by those with which the training ends, after its last epoch; the same on every rank.

        A checkpoint holds the weights before: a training that continues from it makes the same steps.
        """

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """The arrays, besides the weights, that a checkpoint takes from rank 0. Resuming writes into these arrays."""

    def rank_state(self) -> dict[str, np.ndarray]:
        """The arrays that a checkpoint takes from each rank. Resuming writes into these arrays."""
        return {}

    def diagnostics(self) -> dict[str, float]:
        """Figures of the last epoch for the history, the same on all ranks. Collective."""
        return {}

    def close(self) -> None:  # noqa: B027 - most algorithms hold nothing
        """Frees communicators. Collective; call it when all ranks have left `run`, also after an agreed failure."""
