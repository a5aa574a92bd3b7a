"""Ranks of a training whose gradient is a known function, for tests of algorithms without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from mpi_learn.algorithms.algorithm import AlgorithmSetup, MakeOptimizer
from mpi_learn.algorithms.configuration import AlgorithmConfiguration, AnyAlgorithm
from mpi_learn.algorithms.make_algorithm import make_algorithm
from mpi_learn.algorithms.rank_layout import rank_layout_of
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.optimizers.configuration import AnyOptimizer, Sgd
from mpi_learn.optimizers.make_optimizer import make_optimizer
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.testing.thread_ranks import Turns

N, RATE, MOMENTUM = 40, 0.1, 0.5
SAMPLES = (4, 5, 8, 3, 6, 2, 7)
"""Samples of a step of each worker, or of each rank of a cluster."""
WITHOUT_COUNTS = FlatLayout(((6, 6), (4,)))


def start() -> np.ndarray:
    """The initial weights."""
    return np.linspace(-1, 1, N)


def mean_gradient(worker: int, step: int, weights: np.ndarray) -> np.ndarray:
    """The gradient of a quadratic that differs between workers, with noise, over the worker's samples of one step."""
    rng = np.random.default_rng([worker, step])
    return weights - np.random.default_rng(worker).normal(size=N) + rng.normal(size=N)


def summed_gradient(worker: int, step: int, weights: np.ndarray) -> np.ndarray:
    """The sum of the gradients over the worker's samples."""
    return SAMPLES[worker] * mean_gradient(worker, step, weights)


def with_momentum(options: AnyOptimizer | None, updates: float) -> Optimizer:
    """Makes the optimizer of a rank, unless the algorithm's options name another one."""
    own: Any = options or Sgd(learning_rate=RATE, momentum=MOMENTUM)
    return make_optimizer(own, FlatLayout(((N,),)))


class Rank:
    """One rank of a training, whose steps are taken in a given order.

    Args:
        comm: A `ThreadComm`.
        options: The algorithm's section.
        n_steps: Steps per epoch, where the algorithm needs to know them.
        make: Makes the optimizers; default: momentum.
        weights: The initial ones.
        weights_layout: Their layout. Counts, as those of models, are 0 in the weights and 1 in every gradient.
        more: Further attributes of `AlgorithmSetup`.
    """

    def __init__(
        self,
        comm: Any,
        options: Mapping[str, Any],
        n_steps: int = 0,
        make: MakeOptimizer | None = None,
        weights: np.ndarray | None = None,
        weights_layout: FlatLayout = WITHOUT_COUNTS,
        **more: Any,
    ) -> None:
        self.comm = comm
        self.options: AnyAlgorithm = TypeAdapter(AlgorithmConfiguration).validate_python(options)
        self.layout = rank_layout_of(self.options, comm.size)
        self.weights = aligned_empty(N)
        self.weights[:] = start() if weights is None else weights
        self.counts = weights_layout.counts
        self.weights[self.counts] = 0
        self.algorithm: Any = make_algorithm(self.options, AlgorithmSetup(
            comm, self.layout, self.weights, weights_layout, n_sums=5, n_steps=n_steps, learning_rate=RATE,
            make_optimizer=make or with_momentum, **more,
        ))  # fmt: skip
        workers, leaders = self.layout.workers, self.layout.leaders
        self.worker = workers.index(comm.rank) if comm.rank in workers else None
        self.leader = leaders.index(comm.rank) if comm.rank in leaders else None
        self.group = next((i for i, one in enumerate(self.layout.groups) if comm.rank in one), None)
        self.n_made = 0

    def steps(self, n_steps: int, turns: Turns | None = None) -> Iterator[np.ndarray]:
        """Step vectors; those of a leader wait for its turn, and so does its end of the epoch."""
        turns = turns if self.leader is not None else None
        for _ in range(n_steps):
            if turns is not None and self.leader is not None:
                turns.wait(self.leader)
            assert self.worker is not None, "a master makes no steps"
            vector = aligned_empty(N + 5)
            vector[:N] = summed_gradient(self.worker, self.n_made, self.weights)
            vector[self.counts] = 1
            vector[N:] = SAMPLES[self.worker], 1, SAMPLES[self.worker], 0, 0
            self.n_made += 1
            yield vector
            if turns is not None and self.options.name == "gem":  # until the master has handled the push
                self.algorithm.worker.link.pull(aligned_empty(N))
            if turns is not None and not turns.are_over_by_message:
                turns.end()
        if turns is not None and self.leader is not None:
            turns.wait(self.leader)

    def epoch(self, n_steps: int, turns: Turns | None = None) -> dict[str, Any]:
        """Runs an epoch; returns the weights before and after `synchronize`, and the diagnostics."""
        self.algorithm.run(self.steps(n_steps, turns))
        if turns is not None and self.leader is not None:
            turns.end()
        own = self.weights.copy()
        self.algorithm.synchronize()
        return {"own": own, "weights": self.weights.copy(), **self.algorithm.diagnostics()}
