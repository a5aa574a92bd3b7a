"""Downpour: asynchronous stochastic gradient descent (Dean et al. 2012, "Large scale distributed deep networks", 4.1).

A worker sends its gradient; the master's optimizer applies it at once, whatever the others do, and answers with the
weights. With n equal workers a gradient is n − 1 updates old on average, which acts as a momentum of 1 − 1/n: lower the
explicit one, and the learning rate, as n grows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpi_learn.algorithms.parameter_server.centre import N_EXTRA, WEIGHT, Centre, Link
from mpi_learn.algorithms.parameter_server.master_worker import Worker
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.optimizers.optimizer import Optimizer


class DownpourCentre(Centre):
    """``w ← Opt(w, mean gradient)``.

    Args:
        weights: (n,) float32.
        apply: Is handed the summed gradient, (n + 2,) with the number of samples behind it, and changes the weights.
        every: Messages that are added up before `apply`; 0: until `flush`.
    """

    def __init__(
        self, weights: np.ndarray, apply: Callable[[np.ndarray], bool], arrays: dict[str, np.ndarray], every: int = 1
    ) -> None:
        self.weights, self._apply, self._arrays, self.every = weights, apply, arrays, every
        self._kept = None if every == 1 else np.zeros(weights.size + N_EXTRA, np.float32)
        self._n_kept = 0

    def absorb(self, message: np.ndarray) -> None:
        """Applies the gradient, or keeps it until there are enough; answers with the weights."""
        if self._kept is None:
            self.has_failure = not self._apply(message)
        else:
            self._kept += message
            self._n_kept += 1
            if self._n_kept == self.every:
                self.flush()
        message[: self.weights.size] = self.weights

    def flush(self) -> None:
        """Applies what was kept."""
        if self._kept is not None and self._n_kept:
            self.has_failure = not self._apply(self._kept)
            self._kept[:] = 0
            self._n_kept = 0

    def arrays(self) -> dict[str, np.ndarray]:
        """The optimizer's, at the top of the tree."""
        return self._arrays


def applied_by(optimizer: Optimizer, weights: np.ndarray) -> Callable[[np.ndarray], bool]:
    """For the top of the tree: makes one optimizer step; none of a gradient without samples."""

    def apply(message: np.ndarray) -> bool:
        n_samples = float(message[-N_EXTRA + WEIGHT])
        if n_samples:
            optimizer.update(weights, message[: weights.size], 1.0 / n_samples)
        return True

    return apply


def handed_up(link: Link, weights: np.ndarray) -> Callable[[np.ndarray], bool]:
    """For a master below another: hands the summed gradient up and takes the weights that come down."""

    def apply(message: np.ndarray) -> bool:
        answer = link.swap(message)
        if answer is None:
            return False
        weights[:] = answer[: weights.size]
        return True

    return apply


class DownpourWorker(Worker):
    """Sends the gradient of every `sync_every` steps, between which it moves by itself.

    Args:
        link: To the master.
        n: Number of weights.
        sync_every: Steps between two exchanges.
        optimizer: What moves it between them; None if there is nothing between them.
    """

    def __init__(self, link: Link, n: int, sync_every: int, optimizer: Optimizer | None) -> None:
        self.link, self.n, self.sync_every, self.optimizer = link, n, sync_every, optimizer
        self._sum = np.zeros(0, np.float32) if sync_every == 1 else aligned_empty(n + N_EXTRA)
        self._sum[:] = 0
        self._n_steps = 0

    def step(self, weights: np.ndarray, message: np.ndarray, n_samples: float) -> bool:
        """See `Worker.step`."""
        if self.sync_every == 1:
            message[-N_EXTRA + WEIGHT] = n_samples
            return self._swap(weights, message)
        gradient = message[: self.n]
        if n_samples:
            self.optimizer.update(weights, gradient, 1.0 / n_samples)
        self._sum[: self.n] += gradient
        self._sum[-N_EXTRA + WEIGHT] += n_samples
        self._n_steps += 1
        return self.finish(weights) if self._n_steps == self.sync_every else True

    def finish(self, weights: np.ndarray) -> bool:
        """See `Worker.finish`."""
        if not self._n_steps:
            return True
        went_well = self._swap(weights, self._sum)
        self._sum[:] = 0
        self._n_steps = 0
        return went_well

    def _swap(self, weights: np.ndarray, message: np.ndarray) -> bool:
        answer = self.link.swap(message)
        if answer is None:
            return False
        weights[:] = answer[: self.n]
        return True
