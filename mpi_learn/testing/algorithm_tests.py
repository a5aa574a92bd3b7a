"""The rules that every training algorithm follows, as a class of tests.

The ranks are threads of one process. Their gradients are those of a parabola with noise, which differs between workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from mpi_learn.errors import TrainingError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.mpi.agreement import agreed_errors
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.make_optimizer import make_optimizer
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.testing.quadratic_ranks import N, Rank, mean_gradient, start
from mpi_learn.testing.thread_ranks import ThreadComm, run_ranks

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
