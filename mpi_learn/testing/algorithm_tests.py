"""The rules that every training algorithm follows, as a class of tests.

The ranks are threads of one process. Their gradients are those of a parabola with noise, which differs between workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import TypeAdapter

from mpi_learn.algorithms.algorithm import AlgorithmSetup, MakeOptimizer
from mpi_learn.algorithms.configuration import AlgorithmConfiguration, AnyAlgorithm
from mpi_learn.algorithms.make_algorithm import make_algorithm
from mpi_learn.algorithms.rank_layout import rank_layout_of
from mpi_learn.errors import TrainingError
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.mpi.communicators import agreed_errors
from mpi_learn.optimizers.configuration import AnyOptimizer, Sgd
from mpi_learn.optimizers.optimizer import Optimizer, make_optimizer
from mpi_learn.testing.thread_ranks import ThreadComm, Turns, run_ranks

N_STEPS = 4
PLACES = {"before its first step": 0, "in the middle": 2, "after its last step": N_STEPS}


class AlgorithmTests:
    """The tests of an algorithm. Derive a class whose name begins with ``Test``, and set `sections`.

    Attributes:
        sections: Name -> the section ``algorithm`` of a training file. Each test runs with each of them.
        n_ranks: Number of ranks.
        learning_rate: That of the workers' stochastic gradient descent, without momentum.
        n_epochs_to_approach: Number of epochs after which the weights are nearer to the minimum than at the start.
        is_reproducible: Whether the weights do not depend on the speed of the ranks. A training that is resumed from
            its state then has the same weights as one without interruption.
    """

    sections: ClassVar[Mapping[str, Mapping[str, Any]]]
    n_ranks: ClassVar[int] = 6
    learning_rate: ClassVar[float] = 0.1
    n_epochs_to_approach: ClassVar[int] = 10
    is_reproducible: ClassVar[bool] = True

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Calls each test with each of `sections`."""
        if "section" in metafunc.fixturenames:
            metafunc.parametrize("section", list(self.sections.values()), ids=list(self.sections))

    def test_all_ranks_have_the_same_finite_weights_after_an_epoch(self, section: Mapping[str, Any]) -> None:
        def train(rank: Rank) -> list[np.ndarray]:
            return [_epoch(rank) for _ in range(2)]

        of_ranks = self.on_ranks(section, train)
        for epoch in range(2):
            for rank, weights in enumerate(of_ranks):
                assert np.isfinite(weights[epoch]).all()
                np.testing.assert_array_equal(weights[epoch], of_ranks[0][epoch], f"rank {rank}, epoch {epoch}")

    def test_the_weights_approach_the_minimum(self, section: Mapping[str, Any]) -> None:
        def train(rank: Rank) -> tuple[int, np.ndarray]:
            for _ in range(self.n_epochs_to_approach):
                weights = _epoch(rank)
            return len(rank.layout.workers), weights

        n_workers, weights = self.on_ranks(section, train)[0]
        zero = np.zeros(N)
        minimum = -np.mean([mean_gradient(k, step, zero) for k in range(n_workers) for step in range(100)], axis=0)
        assert np.abs(weights - minimum).mean() < 0.8 * np.abs(start() - minimum).mean()

    def test_one_rank_trains_alone(self, section: Mapping[str, Any]) -> None:
        if section.get("masters", 1) > 1 or section.get("processes", 1) > 1:
            pytest.skip("needs several ranks")
        (weights,) = self.on_ranks(section, _epoch, n_ranks=1)
        assert np.isfinite(weights).all()
        assert not np.array_equal(weights, start())

    def test_resumed_training_ends_with_the_same_weights(self, section: Mapping[str, Any]) -> None:
        """Its weights are those of rank 0 after an epoch, with the arrays of `state` and `rank_state`."""
        if not self.is_reproducible:
            pytest.skip("the weights depend on the speed of the ranks")

        def train(rank: Rank) -> tuple[Any, ...]:
            first = _epoch(rank)
            saved = {name: array.copy() for name, array in rank.algorithm.state().items()}
            own = {name: array.copy() for name, array in rank.algorithm.rank_state().items()}
            return first, saved, own, _epoch(rank)

        def resume(rank: Rank) -> np.ndarray:
            rank.weights[:], rank.n_made = of_ranks[0][0], N_STEPS
            for name, array in rank.algorithm.state().items():
                array[...] = of_ranks[0][1][name]
            for name, array in rank.algorithm.rank_state().items():
                array[...] = of_ranks[rank.comm.rank][2][name]
            return _epoch(rank)

        of_ranks = self.on_ranks(section, train)
        for weights in self.on_ranks(section, resume):
            np.testing.assert_array_equal(weights, of_ranks[0][3])

    @pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
    def test_a_worker_that_raises_ends_the_epoch_on_all(self, section: Mapping[str, Any], place: int) -> None:
        """Each of the first, some and the last workers. No rank waits for it, and no message is left."""
        for failing in sorted({0, self.n_ranks // 2, self.n_ranks - 2, self.n_ranks - 1}):
            if failing < section.get("masters", 1) and self._has_masters(section):
                continue
            seen = self.errors_of_ranks(section, failing, place)
            assert seen == [f"{failing}: RuntimeError: boom"] * self.n_ranks

    def errors_of_ranks(self, section: Mapping[str, Any], failing: int, place: int) -> list[str]:
        """What each rank raises in its second epoch, in which the worker `failing` raises before step `place`."""

        def train(rank: Rank) -> str:
            _epoch(rank)
            try:
                with agreed_errors(rank.comm):
                    steps = _steps(rank)
                    rank.algorithm.run(_raising(steps, place) if rank.comm.rank == failing else steps)
            except TrainingError as error:
                return f"{error.rank}: {error.reason}"
            return "no error"

        return self.on_ranks(section, train)

    def on_ranks(
        self, section: Mapping[str, Any], train: Callable[[Rank], Any], n_ranks: int | None = None
    ) -> list[Any]:
        """The results of ``train(rank)`` on all ranks, which leave no message and no communicator behind."""

        def run(comm: ThreadComm) -> Any:
            comms.append(comm)
            rank = Rank(comm, section, N_STEPS, make=self._optimizer)
            try:
                return train(rank)
            finally:
                rank.algorithm.close()

        comms: list[ThreadComm] = []
        results = run_ranks(n_ranks or self.n_ranks, run)
        assert comms[0].unreceived() == [], "MPICH delivers these to the next communicator"
        assert comms[0].unfreed() == []
        return results

    def _optimizer(self, options: Any, updates: float) -> Optimizer:
        return make_optimizer(options or Sgd(learning_rate=self.learning_rate), FlatLayout(((N,),)))

    def _has_masters(self, section: Mapping[str, Any]) -> bool:
        return 0 not in self.on_ranks(section, lambda rank: rank.layout.workers)[0]


def _epoch(rank: Rank) -> np.ndarray:
    """The weights of a rank after an epoch."""
    weights: np.ndarray = rank.epoch(N_STEPS if rank.worker is not None else 0)["weights"]
    return weights


def _steps(rank: Rank) -> Iterator[np.ndarray]:
    return rank.steps(N_STEPS if rank.worker is not None else 0)


def _raising(steps: Iterator[np.ndarray], place: int) -> Iterator[np.ndarray]:
    """The steps before `place`, after which an error is raised."""
    for number, step in enumerate(steps):
        if number == place:
            break
        yield step
    raise RuntimeError("boom")


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
