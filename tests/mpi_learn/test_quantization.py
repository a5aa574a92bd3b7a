"""Weights in 8 bits between clusters: the rounding, the size of a message, and what an exchange keeps."""

import numpy as np
import pytest

from mpi_learn.algorithms.pair_exchange import Exchange, partners
from mpi_learn.algorithms.quantization import BLOCK, dequantized, quantized
from tests.mpi_learn.thread_ranks import run_ranks

N = 3 * BLOCK + 40


def random_vector(*seed):
    return np.random.default_rng(seed).normal(size=N).astype(np.float32)


def test_elements_are_rounded_to_a_part_of_the_largest_of_their_block():
    vector = random_vector(1) * np.geomspace(1e-6, 1e6, N).astype(np.float32)
    found = dequantized(quantized(vector), N)
    for begin in range(0, N, BLOCK):
        block = vector[begin : begin + BLOCK].astype(np.float64)
        unit = np.abs(block).max() / 127
        error = np.abs(found[begin : begin + BLOCK] - block)
        assert error.max() <= 0.5001 * unit
        assert error.mean() == pytest.approx(unit / 4, rel=0.5)
    assert found.dtype == np.float32


@pytest.mark.parametrize("vector", [np.zeros(N, np.float32), np.full(N, -3.0, np.float32)], ids=["zeros", "equal"])
def test_equal_elements_keep_their_value(vector):
    np.testing.assert_allclose(dequantized(quantized(vector), N), vector, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_diverged_weight_stays_visible(value):
    vector = random_vector(2)
    vector[BLOCK + 5] = value
    found = np.isfinite(dequantized(quantized(vector), N))
    assert not found[BLOCK + 5]
    assert found[:BLOCK].all()
    assert found[2 * BLOCK :].all()


def exchanged(neighbours, n_rounds):
    """The weights of five clusters before and after each of some exchanges in 8 bits, and the sizes of messages."""

    def run(comm):
        n_bytes, send = set(), comm.Isend
        comm.Isend = lambda buffer, **options: (n_bytes.add(buffer.nbytes), send(buffer, **options))[1]
        reference, weights = random_vector(0), random_vector(0) + 0.01 * random_vector(1, comm.rank)
        found = [weights.copy()]
        for n_round in range(n_rounds):
            others = partners(neighbours, comm.rank, comm.size, n_round)
            exchange = Exchange(comm, weights, others, reference)
            exchange.wait()
            weights += exchange.mean() - exchange.snapshot
            found.append(weights.copy())
        return found, n_bytes

    results = run_ranks(5, run)
    return np.array([found for found, _ in results]), set().union(*(n_bytes for _, n_bytes in results))


@pytest.mark.parametrize("neighbours", ["ring", "random", "all"])
def test_rounding_neither_changes_the_sum_nor_keeps_clusters_apart(neighbours):
    found, n_bytes = exchanged(neighbours, 30)
    np.testing.assert_allclose(found.sum(0), np.broadcast_to(found[:, 0].sum(0), (31, N)), atol=3e-5)
    unit = 0.01 * 4 / 127  # the differences from the reference are at most about four standard deviations
    assert np.abs(found[:, 0] - found[:, 0].mean(0)).max() > 50 * unit
    assert np.abs(found[:, -1] - found[:, -1].mean(0)).max() < 2 * unit
    assert n_bytes == {N + 4 * 4}, "one byte per weight, and a scale for each of four blocks"
