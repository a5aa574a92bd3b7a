"""The public suite of tests fails for an algorithm with a defect, in the test of that rule."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from mpi_learn.algorithms import make_algorithm
from mpi_learn.algorithms.allreduce import SynchronousAllReduce
from mpi_learn.testing import AlgorithmTests

SECTION = {"name": "allreduce"}


class KeepsItsOwnGradients(SynchronousAllReduce):
    def _exchange(self, step):
        self.optimizer.update(self.weights, step[: self.n], 1.0 / float(step[self.n]))
        return True


class Ascends(SynchronousAllReduce):
    def _exchange(self, step):
        step[: self.n] *= -1
        return super()._exchange(step)


class LeavesOthersWaiting(SynchronousAllReduce):
    def _report_failure(self):
        """Nothing."""


class SendsWithoutNeed(SynchronousAllReduce):
    def synchronize(self):
        self.comm.Isend(np.zeros(1), dest=0, tag=7)


class ForgetsTheNumberOfEpochs(SynchronousAllReduce):
    n_epochs = 0

    def synchronize(self):
        self.n_epochs += 1

    def _exchange(self, step):
        step[: self.n] *= 1 + self.n_epochs
        return super()._exchange(step)


class SwallowsErrors(SynchronousAllReduce):
    def run(self, steps):
        with suppress(RuntimeError):
            super().run(steps)


DEFECTS = {
    KeepsItsOwnGradients: ("all_ranks_have_the_same_finite_weights_after_an_epoch",),
    Ascends: ("the_weights_approach_the_minimum",),
    LeavesOthersWaiting: ("a_worker_that_raises_ends_the_epoch_on_all", 0),
    SendsWithoutNeed: ("one_rank_trains_alone",),
    ForgetsTheNumberOfEpochs: ("resumed_training_ends_with_the_same_weights",),
    SwallowsErrors: ("a_worker_that_raises_ends_the_epoch_on_all", 4),
}


@pytest.mark.parametrize("algorithm", DEFECTS, ids=lambda algorithm: algorithm.__name__)
def test_defect_of_an_algorithm_fails_the_test_of_its_rule(algorithm, monkeypatch):
    monkeypatch.setattr("mpi_learn.testing.thread_ranks.PATIENCE_S", 0.5)
    name, *arguments = DEFECTS[algorithm]
    test = getattr(AlgorithmTests(), f"test_{name}")
    test(SECTION, *arguments)
    monkeypatch.setitem(make_algorithm.ALGORITHMS, "allreduce", algorithm.build)
    with pytest.raises(AssertionError):
        test(SECTION, *arguments)
