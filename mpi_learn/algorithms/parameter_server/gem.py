"""GEM: gradient energy matching (Hermans & Louppe 2018, arXiv:1805.08469).

A worker sends its step d, damped by π, to the centre. The step is the update that the worker's optimizer computes from
its gradients; with plain sgd it is the paper's −ηg. π is chosen such that the updates of all workers together have the
energy κ|m|, where m is the momentum of one worker, for any number of workers:

    ``m ← μm + d``, pull θ, ``π = clamp((κ|m| − |θ − s|) / (|d| + ε), 0, 5)``, push ``πd``, ``s ← θ``, ``x ← θ + πd``

element by element. θ − s is the change of the centre since this worker's last pull. It includes the worker's own last
push, as in the authors' program. s starts as the common initial weights, so that θ − s is zero if no other worker has
changed the centre before the first exchange.

With several masters, a lower master adds the pushes of its workers to its own weights. After as many pushes as it has
workers it sends their sum to the first master and takes its weights.
"""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.configuration import Gem
from mpi_learn.algorithms.parameter_server.masters import CentreSetup, Method, make_role
from mpi_learn.algorithms.parameter_server.worker import Centre, Link, Worker
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.optimizers.rules.rule import Float, fused

EPSILON = 1e-16
LARGEST = 5.0


def build(options: Gem, setup: AlgorithmSetup) -> Algorithm:
    """This rank's part in GEM. Collective over ``setup.comm``."""

    def make_centre(centre: CentreSetup) -> Centre:
        if centre.link is None:
            return EnergyCentre(centre.weights)
        return LowerEnergyCentre(centre.weights, centre.link, centre.n_children)

    def make_worker(link: Link) -> Worker:
        optimizer = setup.make_optimizer(None, setup.n_steps)
        return EnergyWorker(link, setup.n, options.sync_every, optimizer, options.momentum, options.kappa)

    return make_role(Method(make_centre, make_worker, options.compression), setup)


class EnergyCentre(Centre):
    """The centre θ of the first master: ``θ ← θ + πd``.

    Args:
        weights: θ, (n,) float32.
    """

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        self.weights += vector
        self.version += 1

    def answer(self, vector: np.ndarray) -> None:
        """Answers a lower master with θ."""
        vector[:] = self.weights


class LowerEnergyCentre(Centre):
    """The centre of a lower master.

    Args:
        weights: (n,) float32.
        link: To the first master.
        every: Pushes between two exchanges with the first master.
    """

    def __init__(self, weights: np.ndarray, link: Link, every: int) -> None:
        self.weights, self.link, self.every = weights, link, every
        self._pushed = np.zeros(weights.size, np.float32)
        self._n_pushes = 0

    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        self.weights += vector
        self.version += 1
        self._pushed += vector
        self._n_pushes += 1
        if self._n_pushes == self.every:
            self.flush()

    def answer(self, vector: np.ndarray) -> None:
        vector[:] = self.weights

    def flush(self) -> None:
        """Sends the sum of the pushes to the first master and takes its weights."""
        if not self._n_pushes:
            return
        self._n_pushes = 0
        answer = self.link.swap(self._pushed)
        self.has_failure = answer is None
        if answer is not None:
            self.weights[:] = answer
        self._pushed[:] = 0


class EnergyWorker(Worker):
    """Damps its steps by the changes of the centre since its last exchange.

    Args:
        link: To the master.
        n: Number of weights.
        sync_every: Steps between two exchanges.
        optimizer: Makes the worker's steps.
        momentum, kappa: μ and κ.
    """

    def __init__(
        self, link: Link, n: int, sync_every: int, optimizer: Optimizer, momentum: float, kappa: float
    ) -> None:
        self.link, self.sync_every, self.optimizer = link, sync_every, optimizer
        self._numbers = Float(momentum), Float(kappa)
        self._start, self._seen, self._momentum = (np.zeros(n, np.float32) for _ in range(3))
        self._memory = aligned_empty(n)
        self._n_exchanges = np.zeros(1, np.int64)  # an array, so that a checkpoint can fill it
        self._n_steps = 0

    def begin_epoch(self, weights: np.ndarray) -> None:
        """Measures the first step from the centre's weights."""
        self._start[:] = weights
        self._n_steps = 0
        if not self._n_exchanges[0]:
            self._seen[:] = weights

    def step(self, weights: np.ndarray, gradient: np.ndarray, batch_weight: float) -> bool:
        if batch_weight:
            self.optimizer.update(weights, gradient, 1.0 / batch_weight)
        self._n_steps += 1
        return self._exchange(weights) if self._n_steps % self.sync_every == 0 else True

    def finish_epoch(self, weights: np.ndarray) -> bool:
        return self._n_steps % self.sync_every == 0 or self._exchange(weights)

    def rank_state(self) -> dict[str, np.ndarray]:
        optimizer = {f"optimizer.{name}": array for name, array in self.optimizer.arrays().items()}
        own: dict[str, np.ndarray] = {"seen": self._seen, "momentum": self._momentum, "n_exchanges": self._n_exchanges}
        return own | optimizer

    def _exchange(self, weights: np.ndarray) -> bool:
        pulled = self.link.pull(self._memory)
        if pulled is None:
            return False
        _match(weights, self._start, self._seen, self._momentum, pulled, *self._numbers)
        self._n_exchanges += 1
        self.link.push(pulled)
        return True


@fused
def _match(  # type: ignore[no-untyped-def] # compiled, by numba's types
    weights, start, seen, momenta, pulled, momentum, kappa
):
    for i in range(weights.size):
        d = weights[i] - start[i]
        m = momentum * momenta[i] + d
        theta = pulled[i]
        pi = (kappa * abs(m) - abs(theta - seen[i])) / (abs(d) + np.float32(EPSILON))
        step = min(max(pi, np.float32(0.0)), np.float32(LARGEST)) * d
        momenta[i] = m
        seen[i] = theta
        pulled[i] = step
        weights[i] = theta + step
        start[i] = weights[i]
