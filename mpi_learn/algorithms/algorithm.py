"""The interface of a training algorithm: how ranks that compute gradients come to common weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

OnReady = Callable[[np.ndarray, int], None]
"""Told, during back-propagation, of the step vector and the number of the array whose gradient in it is complete."""


class Algorithm(ABC):
    """How ranks work together during an epoch. Used as a context around each epoch's steps.

    A rank that raises inside the context signs off, so that no other waits for it.
    """

    @abstractmethod
    def exchange(self, weights: np.ndarray, step: np.ndarray) -> np.ndarray | None:
        """One step of a worker: changes `weights` in place.

        Args:
            weights: (n,) float32.
            step: (n + sums,) float32 step vector (see `mpi_learn.flat_layout`); its content is lost.

        Returns:
            The sums to be added up over the epoch, float32, a view; None if some rank failed: leave the epoch.
        """

    @abstractmethod
    def serve(self, weights: np.ndarray) -> None:
        """A master's part of an epoch: returns when all its workers have ended theirs."""

    @abstractmethod
    def total(self, sums: np.ndarray) -> np.ndarray:
        """The epoch's sums over all workers, from what each added up, float64. Collective."""

    @abstractmethod
    def settle(self, weights: np.ndarray) -> None:
        """Brings the weights that are validated and saved to every rank. Collective, once an epoch."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold besides the weights; the very arrays, so that they can be filled."""

    def own_arrays(self) -> dict[str, np.ndarray]:
        """As `arrays`, but what this rank alone has: rank 0 has not, or has something else."""
        return {}

    @property
    def on_ready(self) -> OnReady | None:
        """What wants to know of each gradient as soon as it is complete; None: nothing does."""
        return None

    def deal_by(self, deal: Callable[[], slice | None]) -> None:  # noqa: B027 - only masters deal
        """Samples of the epoch to come go to whoever is free: `deal` gives the next ones, None when all are dealt."""

    def next_part(self) -> slice | None:
        """A worker's next samples, where they go to whoever is free; None when all are dealt."""
        return None

    def notes(self) -> dict[str, float]:
        """What there is to say of the epoch besides the model's metrics; rank 0's words count. Collective."""
        return {}

    @abstractmethod
    def sign_off(self) -> None:
        """This rank failed: tells the others, so that none waits for it."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """The training is over and went well: gives back communicators of its own. Collective."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is not None:
            self.sign_off()
