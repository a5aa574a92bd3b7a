"""Sums of step vectors over ranks, against sums in float64. The ranks are threads."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.algorithms.allreduce import make_reduction
from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.algorithms.reduction import orthonormalize
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.testing.thread_ranks import run_ranks

N_RANKS, N, N_SENT = 3, 41, 10
SHAPES = ((3, 2, 6), (5,))
"""A kernel that becomes a matrix of 6 times 6, and a vector."""
WEIGHTS = (64.0, 8.0, 1.0)
"""The weight of the batch of each rank."""


def step_vector(rank, step):
    """A gradient times the weight of its batch, and five sums."""
    gradient = WEIGHTS[rank] * np.random.default_rng([rank, step]).normal(size=N)
    return np.append(gradient, [WEIGHTS[rank], 1 / 3, 1234.5678, 0, 0])


def reduced(n_steps, **options):
    """What each rank has after each step, and what it holds back at the end."""

    def run(comm):
        reduction, found = make_reduction(AllReduce(**options), FlatLayout(SHAPES), comm.size), []
        for number in range(n_steps):
            step = step_vector(comm.rank, number).astype(np.float32)
            reduction.sum(comm, step)
            found.append(step)
        return found, reduction.rank_state()

    return run_ranks(N_RANKS, run)


@pytest.mark.parametrize(("compression", "accuracy"), [("none", 1e-6), ("float16", 1e-3), ("int8", 1e-2)])
def test_sums_are_those_of_float64(compression, accuracy):
    """The gradients of the ranks have different magnitudes; the sums behind the gradient are always exact."""
    expected = sum(step_vector(rank, 0) for rank in range(N_RANKS))
    for (found,), _ in reduced(1, compression=compression):
        np.testing.assert_allclose(found[:N], expected[:N], atol=accuracy * np.abs(expected[:N]).max())
        np.testing.assert_allclose(found[N:], expected[N:], rtol=1e-6)


@pytest.mark.parametrize("largest", [0.0, 1e-45, 1e-41, 1e-36])
def test_tiny_gradients_stay_finite_in_16_bits(largest):
    """Their largest element divided by that of float16 is 0, or not a normal number, in float32."""

    def run(comm):
        step = np.zeros(N + 5, np.float32)
        step[:2], step[N] = (largest, -largest / 2), 1
        make_reduction(AllReduce(compression="float16"), FlatLayout(SHAPES), comm.size).sum(comm, step)
        return step

    for found in run_ranks(2, run):
        np.testing.assert_allclose(found[:2], [2 * largest, -largest], rtol=1e-2, atol=1e-38)
        assert not found[2:N].any()


@pytest.mark.parametrize("exact_steps", [0, 2])
def test_top_k_sends_the_largest_elements_and_adds_the_others_to_the_next_mean_gradient(exact_steps):
    """Lin et al. 2018, algorithm 1, with remainders that are means over samples, after some exact steps."""
    held_back, expected = np.zeros((N_RANKS, N)), []
    for number in range(4):
        total = sum(step_vector(rank, number) for rank in range(N_RANKS))
        if number < exact_steps:
            expected.append(total)
            continue
        total[:N] = 0
        for rank, kept in enumerate(held_back):
            kept += step_vector(rank, number)[:N] / WEIGHTS[rank]
            largest = np.argsort(np.abs(kept))[-N_SENT:]
            total[largest] += WEIGHTS[rank] * kept[largest]
            kept[largest] = 0
        expected.append(total)
    options = {"compression": "top-k", "fraction": N_SENT / N, "exact_steps": exact_steps}
    for rank, (found, arrays) in enumerate(reduced(4, **options)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(arrays["held_back"], held_back[rank], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exact_steps", [0, 2])
def test_power_sgd_sends_matrices_of_low_rank_and_adds_the_rest_to_the_next_mean_gradient(exact_steps):
    """Vogels, Karimireddy & Jaggi 2019, algorithms 1 and 2, with projections instead of an orthogonalisation.

    Exact steps neither hold anything back nor change Q.
    """
    held_back, right, expected = np.zeros((N_RANKS, 6, 6)), None, []
    found = reduced(4, compression="power-sgd", matrix_rank=2, exact_steps=exact_steps)
    for number in range(4):
        steps = [step_vector(rank, number) for rank in range(N_RANKS)]
        if number < exact_steps:
            expected.append(sum(steps))
            continue
        means = [held + step[:36].reshape(6, 6) / step[N] for held, step in zip(held_back, steps, strict=True)]
        matrix = sum(weight * mean for weight, mean in zip(WEIGHTS, means, strict=True))
        if right is None:  # the first one is drawn at random; of the result, only the space of its columns matters
            right = np.random.default_rng(0).standard_normal(12, np.float32).reshape(6, 2)
        left = matrix @ right
        approximation = left @ np.linalg.pinv(left) @ matrix  # the projection on the columns of P
        right = matrix.T @ left
        held_back = [mean - approximation / sum(WEIGHTS) for mean in means]
        expected.append(np.concatenate([approximation.ravel(), sum(steps)[36:]]))
    for rank, (vectors, arrays) in enumerate(found):
        np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(arrays["held_back"][:36], held_back[rank].ravel(), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(arrays["held_back"][36:], 0)


@pytest.mark.parametrize("compression", ["float16", "2-bit", "top-k", "power-sgd"])
def test_exact_steps_are_those_of_whole_gradients_to_the_last_bit(compression):
    options = {"compression": compression, "fraction": 0.1, "matrix_rank": 2}
    for (whole, _), (found, _) in zip(reduced(3), reduced(3, **options, exact_steps=2), strict=True):
        np.testing.assert_array_equal(found[:2], whole[:2])
        assert not np.array_equal(found[2], whole[2])


def test_a_rank_without_samples_is_compressed_from_the_same_step():
    """With other operations than the other ranks', the communicator raises an error."""

    def run(comm):
        options = AllReduce(compression="power-sgd", matrix_rank=2, exact_steps=2)
        reduction, found = make_reduction(options, FlatLayout(SHAPES), comm.size), []
        for number in range(3):
            step = step_vector(comm.rank, number).astype(np.float32)
            if number == 0 and comm.rank == 1:
                step[:] = 0
            reduction.sum(comm, step)
            found.append(step)
        return found

    for first, second, third in run_ranks(N_RANKS, run):
        np.testing.assert_allclose(first, step_vector(0, 0) + step_vector(2, 0), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(second, sum(step_vector(rank, 1) for rank in range(N_RANKS)), rtol=1e-5, atol=1e-4)
        assert np.linalg.matrix_rank(third[:36].reshape(6, 6), tol=1e-3) == 2


@pytest.mark.parametrize("compression", ["int8", "top-k", "power-sgd"])
@pytest.mark.parametrize("empty", ["array", "step", "sum of the weights", "none"])
def test_what_is_held_back_arrives_later_also_after_steps_without_a_gradient(empty, compression):
    """A matrix of rank 2 is sent as one of rank 1, or in thirds of its elements. A gradient of zero precedes it."""
    matrix = np.outer(np.arange(1, 7), np.ones(6)) + 0.1 * np.outer(np.ones(6), np.arange(6))
    layout = FlatLayout(((6, 6),)).with_counts()

    def run(comm):
        options = AllReduce(compression=compression, matrix_rank=1, fraction=1 / 3)
        reduction, total = make_reduction(options, layout, comm.size), np.zeros(36)
        for number in range(7):
            is_used, weight = number != 2 or empty != "array", 2
            if number == 2 and empty in ("step", "sum of the weights"):
                weight = 0 if empty == "step" else (1, -1)[comm.rank]
            gradient = weight * matrix.ravel() if number == 1 else np.zeros(36)
            step = np.concatenate([gradient, [is_used, weight, 0, 0, 0, 0]]).astype(np.float32)
            reduction.sum(comm, step)
            if step[37] != 0:  # without weight, the step vector is not used
                total += step[:36] / step[37]
            if not is_used:
                np.testing.assert_array_equal(step[:36], 0)
        return total

    for total in run_ranks(2, run):
        np.testing.assert_allclose(total, matrix.ravel(), atol=1e-3)


def test_columns_become_orthonormal():
    matrix = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    matrix[:, 3] = matrix[:, 1] + 1e-3 * matrix[:, 3]
    columns = matrix.copy()
    orthonormalize(columns)
    np.testing.assert_allclose(columns.T @ columns, np.eye(7), atol=1e-3)
    np.testing.assert_allclose(columns @ columns.T @ matrix, matrix, atol=1e-3)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_columns_that_depend_on_one_another_become_orthonormal(rank):
    rng = np.random.default_rng(0)
    matrix = (rng.normal(size=(64, rank)) @ rng.normal(size=(rank, 16))).astype(np.float32)
    columns = matrix.copy()
    orthonormalize(columns)
    np.testing.assert_allclose(columns.T @ columns, np.eye(16), atol=1e-5)
    np.testing.assert_allclose(columns @ columns.T @ matrix, matrix, atol=1e-4)


def test_power_sgd_sends_gradients_of_a_lower_rank_exactly():
    """The gradient of a dense layer has at most as many ranks as the batch has samples."""
    layout = FlatLayout(((64, 64),))

    def run(comm):
        reduction, errors = make_reduction(AllReduce(compression="power-sgd", matrix_rank=16), layout, comm.size), []
        for number in range(5):
            rng = np.random.default_rng(number)
            gradient = (rng.normal(size=(64, 4)) @ rng.normal(size=(4, 64))).ravel()
            step = np.concatenate([gradient, [1, 0, 1, 0, 0]]).astype(np.float32)
            reduction.sum(comm, step)
            errors.append(np.linalg.norm(step[:-5] / 2 - gradient) / np.linalg.norm(gradient))
        return errors

    assert max(run_ranks(2, run)[0]) < 1e-5


@pytest.mark.parametrize("compression", ["2-bit", "top-k", "power-sgd"])
def test_the_gradient_of_one_rank_is_not_compressed(compression):
    step = step_vector(0, 0).astype(np.float32)
    found = step.copy()
    make_reduction(AllReduce(compression=compression, matrix_rank=2), FlatLayout(SHAPES), 1).sum(MPI.COMM_SELF, found)
    np.testing.assert_array_equal(found, step)


def test_power_sgd_sends_a_gradient_after_one_of_zeros():
    """Its first rows are zeros, like the weights of pixels at the border of images."""
    gradient = np.zeros((3, 2, 6), np.float32)
    gradient[2] = np.arange(12).reshape(2, 6)

    def run(comm):
        reduction = make_reduction(AllReduce(compression="power-sgd", matrix_rank=2), FlatLayout(SHAPES), comm.size)
        for factor in (0, 1):
            step = np.concatenate([factor * gradient.ravel(), np.zeros(5), [1, 0, 1, 0, 0]]).astype(np.float32)
            reduction.sum(comm, step)
        return step[:36] / step[N]

    for found in run_ranks(2, run):
        np.testing.assert_allclose(found, gradient.ravel(), atol=1e-4)


@pytest.mark.parametrize("compression", ["2-bit", "power-sgd"])
def test_a_rank_without_samples_keeps_what_it_holds_back(compression):
    def run(comm):
        options = AllReduce(compression=compression, matrix_rank=2)
        reduction, held_back = make_reduction(options, FlatLayout(SHAPES), comm.size), []
        for number in range(2):
            step = step_vector(comm.rank, number).astype(np.float32)
            if number == 1 and comm.rank == 1:
                step[:] = 0
            reduction.sum(comm, step)
            held_back.append(reduction.rank_state()["held_back"].copy())
        return held_back

    for rank, (before, after) in enumerate(run_ranks(N_RANKS, run)):
        assert np.array_equal(before, after) is (rank == 1)
