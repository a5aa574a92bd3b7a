"""Sums of step vectors over ranks, against sums in float64. The ranks are threads."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.algorithms.reduction import make_reduction
from tests.mpi_learn.thread_ranks import run_ranks

N_RANKS, N, N_SENT = 3, 41, 10
WEIGHTS = (64.0, 8.0, 1.0)
"""The weight of the batch of each rank."""


def step_vector(rank, step):
    """A gradient times the weight of its batch, and five sums."""
    gradient = WEIGHTS[rank] * np.random.default_rng([rank, step]).normal(size=N)
    return np.append(gradient, [WEIGHTS[rank], 1 / 3, 1234.5678, 0, 0])


def reduced(n_steps, **options):
    """What each rank has after each step, and what it holds back at the end."""

    def run(comm):
        reduction, found = make_reduction(AllReduce(**options), N), []
        for number in range(n_steps):
            step = step_vector(comm.rank, number).astype(np.float32)
            reduction.sum(comm, step)
            found.append(step)
        return found, reduction.arrays()

    return run_ranks(N_RANKS, run)


@pytest.mark.parametrize(("compression", "accuracy"), [("none", 1e-6), ("float16", 1e-3)])
def test_sums_are_those_of_float64(compression, accuracy):
    """The gradients of the ranks have different magnitudes; the sums behind the gradient are always exact."""
    expected = sum(step_vector(rank, 0) for rank in range(N_RANKS))
    for (found,), _ in reduced(1, compression=compression):
        np.testing.assert_allclose(found[:N], expected[:N], atol=accuracy * np.abs(expected[:N]).max())
        np.testing.assert_allclose(found[N:], expected[N:], rtol=1e-6)


def test_top_k_sends_the_largest_elements_and_adds_the_others_to_the_next_mean_gradient():
    """Lin et al. 2018, algorithm 1, with remainders that are means over samples."""
    held_back, expected = np.zeros((N_RANKS, N)), []
    for number in range(4):
        total = sum(step_vector(rank, number) for rank in range(N_RANKS))
        total[:N] = 0
        for rank, kept in enumerate(held_back):
            kept += step_vector(rank, number)[:N] / WEIGHTS[rank]
            largest = np.argsort(np.abs(kept))[-N_SENT:]
            total[largest] += WEIGHTS[rank] * kept[largest]
            kept[largest] = 0
        expected.append(total)
    for rank, (found, arrays) in enumerate(reduced(4, compression="top-k", fraction=N_SENT / N)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(arrays["held_back"], held_back[rank], rtol=1e-5, atol=1e-6)
