"""EASGD: elastic averaging (Zhang, Choromanska & LeCun 2015, "Deep learning with elastic averaging SGD", algorithm 1).

Worker i trains on its own. Every `sync_every` steps its weights and the centre attract each other:
``d = α (xᵢ − x̃)``, ``xᵢ ← xᵢ − d``, ``x̃ ← x̃ + d``, both from the same two vectors. α = β / workers; the centre is
stable for β < 1, and the authors use 0.9. With ``optimizer: {name: sgd, momentum: 0.9, nesterov: true}`` it is their
EAMSGD. The trained model is the centre.

With several masters, a lower master's centre is attracted by its workers and, after as many exchanges as it has
workers, by the first master's centre as a worker would be; α of each master is β / the number of ranks that it serves.
"""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.configuration import Easgd
from mpi_learn.algorithms.parameter_server.masters import CentreSetup, Method, make_role
from mpi_learn.algorithms.parameter_server.worker import Centre, Link, Worker
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.optimizers.rules.rule import Float, fused


def build(options: Easgd, setup: AlgorithmSetup) -> Algorithm:
    """This rank's part in EASGD. Collective over ``setup.comm``."""

    def make_centre(centre: CentreSetup) -> Centre:
        alpha = options.elastic_force / centre.n_children
        if centre.link is None:
            return ElasticCentre(centre.weights, alpha)
        return LowerElasticCentre(centre.weights, alpha, centre.link, centre.n_children)

    def make_worker(link: Link) -> Worker:
        return ElasticWorker(link, setup.n, options.sync_every, setup.make_optimizer(None, setup.n_steps))

    return make_role(Method(make_centre, make_worker, options.compression, sends_weights=True), setup)


class ElasticCentre(Centre):
    """The centre x̃ of the first master.

    Args:
        weights: x̃, (n,) float32.
        alpha: The moving rate α.
    """

    def __init__(self, weights: np.ndarray, alpha: float) -> None:
        self.weights, self.alpha = weights, Float(alpha)

    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        """``d = α (xᵢ − x̃)``, ``x̃ ← x̃ + d``; leaves d in `vector`."""
        _attract(self.weights, vector, self.alpha)
        self.version += 1

    def answer(self, vector: np.ndarray) -> None:
        """Answers with d, which `absorb` has left in `vector`."""


class LowerElasticCentre(Centre):
    """The centre of a lower master. It keeps its weights from epoch to epoch, as a worker does.

    Args:
        weights: The model's, (n,) float32, from which the centre starts.
        alpha: The moving rate α.
        link: To the first master.
        every: Exchanges with workers between two exchanges with the first master.
    """

    def __init__(self, weights: np.ndarray, alpha: float, link: Link, every: int) -> None:
        self.weights, self.alpha, self.link, self.every = weights.copy(), Float(alpha), link, every
        self._model_weights = weights
        self._n_exchanges = np.zeros(1, np.int64)  # an array, so that a checkpoint can fill it
        self._sent = aligned_empty(weights.size)

    def begin_epoch(self) -> None:
        """Starts from the model's weights, which a checkpoint may have filled, unless it has been trained already."""
        if not self._n_exchanges[0]:
            self.weights[:] = self._model_weights

    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        """``d = α (xᵢ − x̃)``, ``x̃ ← x̃ + d``; leaves d in `vector`."""
        _attract(self.weights, vector, self.alpha)
        self.version += 1
        self._n_exchanges += 1
        if self._n_exchanges[0] % self.every == 0:
            self._sent[:] = self.weights
            answer = self.link.swap(self._sent)
            self.has_failure = answer is None
            if answer is not None:
                self.weights -= answer

    def answer(self, vector: np.ndarray) -> None:
        """Answers with d, which `absorb` has left in `vector`."""

    def rank_state(self) -> dict[str, np.ndarray]:
        return {"centre": self.weights, "n_exchanges": self._n_exchanges}


class ElasticWorker(Worker):
    """Trains on its own and exchanges every `sync_every` steps. It keeps its weights from epoch to epoch.

    Args:
        link: To the master.
        n: Number of weights.
        sync_every: Steps between two exchanges.
        optimizer: Makes the worker's steps.
    """

    def __init__(self, link: Link, n: int, sync_every: int, optimizer: Optimizer) -> None:
        self.link, self.sync_every, self.optimizer = link, sync_every, optimizer
        self._n_steps = np.zeros(1, np.int64)  # an array, so that a checkpoint can fill it
        self._own = aligned_empty(n)

    def begin_epoch(self, weights: np.ndarray) -> None:
        """Continues from the worker's own weights, not from the centre."""
        if self._n_steps[0]:
            weights[:] = self._own

    def step(self, weights: np.ndarray, gradient: np.ndarray, batch_weight: float) -> bool:
        if batch_weight:
            self.optimizer.update(weights, gradient, 1.0 / batch_weight)
        self._n_steps += 1
        if self._n_steps[0] % self.sync_every:
            return True
        gradient[:] = weights  # its memory is free now
        answer = self.link.swap(gradient)
        if answer is None:
            return False
        weights -= answer
        return True

    def finish_epoch(self, weights: np.ndarray) -> bool:
        """Keeps the worker's weights for the next epoch."""
        self._own[:] = weights
        return True

    def rank_state(self) -> dict[str, np.ndarray]:
        optimizer = {f"optimizer.{name}": array for name, array in self.optimizer.arrays().items()}
        return {"weights": self._own, "n_steps": self._n_steps} | optimizer


@fused
def _attract(centre: np.ndarray, vector: np.ndarray, alpha: Float) -> None:
    for i in range(centre.size):
        d = alpha * (vector[i] - centre[i])
        vector[i] = d
        centre[i] += d
