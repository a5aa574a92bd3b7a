"""EASGD: elastic averaging (Zhang, Choromanska & LeCun 2015, "Deep learning with elastic averaging SGD", algorithm 1).

Worker i trains by itself. Every `sync_every` steps it and the centre draw each other nearer:
``d = α (xᵢ − x̃)``, ``xᵢ ← xᵢ − d``, ``x̃ ← x̃ + d``, both from the same two vectors. α = elastic_force / workers; the
centre is stable for elastic_force < 1, and 0.9 is the authors' choice. With ``optimizer: {name: sgd, momentum: 0.9,
nesterov: true}`` it is their EAMSGD. The trained model is the centre.
"""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.parameter_server.centre import N_EXTRA, Centre, Link
from mpi_learn.algorithms.parameter_server.master_worker import Worker
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.optimizers.optimizer import Float, Optimizer, fused


class ElasticCentre(Centre):
    """The centre x̃.

    Args:
        weights: x̃, (n,) float32.
        alpha: The moving rate.
        link: To the master above, for a master below another; it is drawn to that one as a worker is.
        every: Exchanges with workers between two with the master above.
    """

    def __init__(self, weights: np.ndarray, alpha: float, link: Link | None = None, every: int = 0) -> None:
        self.weights, self.alpha, self.link, self.every = weights, Float(alpha), link, every
        self._n = 0
        self._message = aligned_empty(weights.size + N_EXTRA if link is not None else 0)

    def absorb(self, message: np.ndarray) -> None:
        """``x̃ ← x̃ + d``; answers with d."""
        _draw(self.weights, message, self.alpha)
        self._n += 1
        if self.link is not None and self._n % self.every == 0:
            self._message[: self.weights.size] = self.weights
            answer = self.link.swap(self._message)
            self.has_failure = answer is None
            if answer is not None:
                self.weights -= answer[: self.weights.size]


class ElasticWorker(Worker):
    """Trains by itself with its own optimizer; exchanges every `sync_every` steps."""

    keeps_weights = True

    def __init__(self, link: Link, n: int, sync_every: int, optimizer: Optimizer) -> None:
        self.link, self.n, self.sync_every, self.optimizer = link, n, sync_every, optimizer
        self._n_steps = np.zeros(1, np.int64)  # an array, so that a checkpoint can hold it

    def step(self, weights: np.ndarray, message: np.ndarray, n_samples: float) -> bool:
        """See `Worker.step`."""
        if n_samples:
            self.optimizer.update(weights, message[: self.n], 1.0 / n_samples)
        self._n_steps += 1
        if self._n_steps[0] % self.sync_every:
            return True
        message[: self.n] = weights
        answer = self.link.swap(message)
        if answer is None:
            return False
        weights -= answer[: self.n]
        return True

    def arrays(self) -> dict[str, np.ndarray]:
        """See `Worker.arrays`."""
        return super().arrays() | {"n_steps": self._n_steps}


@fused
def _draw(centre, message, alpha):
    for i in range(centre.size):
        d = alpha * (message[i] - centre[i])
        message[i] = d
        centre[i] += d
