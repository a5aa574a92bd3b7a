"""The interface of the weights that a master holds."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Centre(ABC):
    """Common weights that change with each message of a worker.

    Attributes:
        weights: (n,) float32, changed in place.
        version: Number of changes so far; the difference of two versions is a staleness.
        has_failure: Whether the first master has reported that a rank failed.
    """

    weights: np.ndarray
    version: int = 0
    has_failure: bool = False

    def begin_epoch(self) -> None:  # noqa: B027 - most centres have nothing to do
        """Begins an epoch, with the weights of the last `Algorithm.synchronize`."""

    @abstractmethod
    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        """Applies a worker's message.

        Args:
            vector: (n,) float32; may be changed.
            batch_weight: The weight of its batches (see `mpi_learn.flat_layout`).
        """

    @abstractmethod
    def answer(self, vector: np.ndarray) -> None:
        """Replaces `vector`, (n,) float32, which `absorb` has received, by the answer to a swap."""

    def flush(self) -> None:  # noqa: B027 - most centres hold nothing back
        """Applies the collected messages, or sends them to the first master, at the end of a round or an epoch."""

    def state(self) -> dict[str, np.ndarray]:
        """The common arrays besides the weights, for a checkpoint. Resuming writes into these arrays."""
        return {}

    def rank_state(self) -> dict[str, np.ndarray]:
        """This master's arrays, for a checkpoint. Resuming writes into these arrays."""
        return {}
