"""Downpour: asynchronous stochastic gradient descent (Dean et al. 2012, "Large scale distributed deep networks", 4.1).

A worker sends its gradient. The master's optimizer applies it when it arrives and answers with the weights. With n
equally fast workers a gradient is n − 1 updates old on average, which acts like a momentum of 1 − 1/n: lower the
explicit momentum and the learning rate as n grows.

With several masters, a lower master sums as many gradients as it serves workers and sends the sum to the first master,
which then has fewer messages to handle. Between two such exchanges the weights of the lower master do not change, and
it answers its workers with them.
"""

from __future__ import annotations

import math

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.configuration import Downpour
from mpi_learn.algorithms.parameter_server.masters import CentreSetup, Method, make_role
from mpi_learn.algorithms.parameter_server.worker import Centre, Link, Worker
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import Optimizer


def build(options: Downpour, setup: AlgorithmSetup) -> Algorithm:
    """This rank's part in Downpour. Collective over ``setup.comm``."""
    n_messages = math.ceil(setup.n_steps / options.sync_every)  # of each child per epoch

    def make_centre(centre: CentreSetup) -> Centre:
        if centre.link is not None:
            n_summed = None if options.synchronous else centre.n_children
            return LowerCentre(centre.weights, centre.link, n_summed)
        n_updates = n_messages if options.synchronous else n_messages * centre.n_children
        return FirstCentre(centre.weights, setup.make_optimizer(None, n_updates), in_rounds=options.synchronous)

    def make_worker(link: Link) -> Worker:
        if options.sync_every == 1:
            return GradientWorker(link)
        own = options.worker_optimizer or Sgd(learning_rate=setup.learning_rate)
        return LocalStepsWorker(link, setup.n, options.sync_every, setup.make_optimizer(own, setup.n_steps))

    quorum = options.quorum if options.synchronous else None
    return make_role(Method(make_centre, make_worker, options.compression, quorum, sends_gradients=True), setup)


class GradientSum:
    """A sum of gradients and of the weights of their batches. Each gradient contains its weight as a factor.

    Args:
        n: Length of a gradient.
    """

    def __init__(self, n: int) -> None:
        self.gradient = aligned_empty(n)
        self.clear()

    def add(self, gradient: np.ndarray, batch_weight: float) -> None:
        """Adds a gradient, (n,) float32."""
        self.gradient += gradient
        self.weight += batch_weight
        self.n_terms += 1

    def clear(self) -> None:
        """Starts again from zero."""
        self.gradient[:] = 0
        self.weight, self.n_terms = 0.0, 0


class FirstCentre(Centre):
    """The weights of the first master: ``w ← Opt(w, mean gradient)``.

    Args:
        weights: (n,) float32.
        optimizer: Makes the updates.
        in_rounds: Whether the gradients of a synchronous round make one update.
    """

    def __init__(self, weights: np.ndarray, optimizer: Optimizer, *, in_rounds: bool) -> None:
        self.weights, self.optimizer = weights, optimizer
        self._round = GradientSum(weights.size) if in_rounds else None

    def begin_epoch(self) -> None:
        """Restarts the version: all ranks have the weights of `Algorithm.synchronize`."""
        self.version = 0

    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        """Applies a gradient, or adds it to those of the round."""
        if self._round is not None:
            self._round.add(vector, batch_weight)
        else:
            self._update(vector, batch_weight)

    def answer(self, vector: np.ndarray) -> None:
        vector[:] = self.weights

    def flush(self) -> None:
        """Applies the gradients of the round."""
        if self._round is not None and self._round.n_terms:
            self._update(self._round.gradient, self._round.weight)
            self._round.clear()

    def state(self) -> dict[str, np.ndarray]:
        return self.optimizer.arrays()

    def _update(self, gradient: np.ndarray, batch_weight: float) -> None:
        if batch_weight:  # a step without weight changes nothing, not even the optimizer's momentum
            self.optimizer.update(self.weights, gradient, 1.0 / batch_weight)
        self.version += 1


class LowerCentre(Centre):
    """The weights of a lower master: those of the first master at the last exchange.

    Args:
        weights: (n,) float32.
        link: To the first master.
        n_summed: Number of gradients that are summed before the sum is sent; None: those of a synchronous round.
    """

    def __init__(self, weights: np.ndarray, link: Link, n_summed: int | None) -> None:
        self.weights, self.link, self.n_summed = weights, link, n_summed
        self._sum = GradientSum(weights.size)

    def begin_epoch(self) -> None:
        """Restarts both versions: all ranks have the weights of `Algorithm.synchronize`."""
        self.version = self.link.version = 0

    def absorb(self, vector: np.ndarray, batch_weight: float) -> None:
        """Adds a gradient to the sum, and sends the sum to the first master when it is complete."""
        self._sum.add(vector, batch_weight)
        if self._sum.n_terms == self.n_summed:
            self.flush()

    def answer(self, vector: np.ndarray) -> None:
        vector[:] = self.weights

    def flush(self) -> None:
        """Sends the sum to the first master and takes its weights."""
        if not self._sum.n_terms:
            return
        answer = self.link.swap(self._sum.gradient, self._sum.weight)
        self.has_failure = answer is None
        if answer is not None:
            self.weights[:] = answer
            self.version += 1
        self._sum.clear()


class GradientWorker(Worker):
    """Sends the gradient of every step and continues with the weights of the answer."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def begin_epoch(self, weights: np.ndarray) -> None:
        """Restarts the version: all ranks have the weights of `Algorithm.synchronize`."""
        self.link.version = 0

    def step(self, weights: np.ndarray, gradient: np.ndarray, batch_weight: float) -> bool:
        return swap_gradient(self.link, weights, gradient, batch_weight)


class LocalStepsWorker(Worker):
    """Makes `sync_every` steps on its own and sends the sum of their gradients.

    Args:
        link: To the master.
        n: Number of weights.
        sync_every: Steps between two exchanges.
        optimizer: Updates the worker's weights between two exchanges.
    """

    def __init__(self, link: Link, n: int, sync_every: int, optimizer: Optimizer) -> None:
        self.link, self.sync_every, self.optimizer = link, sync_every, optimizer
        self._sum = GradientSum(n)

    def begin_epoch(self, weights: np.ndarray) -> None:
        """Restarts the version, as in `GradientWorker`, and the sum."""
        self.link.version = 0
        self._sum.clear()

    def step(self, weights: np.ndarray, gradient: np.ndarray, batch_weight: float) -> bool:
        if batch_weight:
            self.optimizer.update(weights, gradient, 1.0 / batch_weight)
        self._sum.add(gradient, batch_weight)
        return self.finish_epoch(weights) if self._sum.n_terms == self.sync_every else True

    def finish_epoch(self, weights: np.ndarray) -> bool:
        if not self._sum.n_terms:
            return True
        has_answer = swap_gradient(self.link, weights, self._sum.gradient, self._sum.weight)
        self._sum.clear()
        return has_answer

    def rank_state(self) -> dict[str, np.ndarray]:
        return {f"optimizer.{name}": array for name, array in self.optimizer.arrays().items()}


def swap_gradient(link: Link, weights: np.ndarray, gradient: np.ndarray, batch_weight: float) -> bool:
    """Sends a gradient and replaces `weights` by the answer; False if a rank failed. The gradient's content is lost."""
    answer = link.swap(gradient, batch_weight)
    if answer is None:
        return False
    weights[:] = answer
    return True
