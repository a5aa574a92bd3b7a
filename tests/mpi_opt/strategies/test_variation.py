"""Crossover and mutation of many points at once, against DEAP's of one, and on the bounds."""

import random

import numpy as np
import pytest
from deap import tools
from scipy.stats import ks_2samp

from mpi_opt.strategies.evolution.breeder import crossed, mutated

N = 4000
NUMBERS, CATEGORIES = np.array([False]), np.array([True])


@pytest.mark.parametrize(("first", "second"), [(0.3, 0.7), (0.02, 0.6), (0.9, 0.98), (0.4, 0.4)])
def test_crossover_has_the_distribution_of_deap(first, second):
    rng = np.random.default_rng(0)
    ours = crossed(rng.random((3, N, 1)), np.full((N, 1), first), np.full((N, 1), second), 5.0, NUMBERS)[:, 0]
    theirs = []
    random.seed(0)
    for _ in range(N):
        pair = tools.cxSimulatedBinaryBounded([first], [second], eta=5.0, low=0.0, up=1.0)
        theirs.append(pair[0][0])
    assert ks_2samp(ours, theirs).pvalue > 0.001


@pytest.mark.parametrize("eta", [1.0, 20.0, 1e4])
@pytest.mark.parametrize("start", [0.0, 0.1, 0.97, 1.0])
def test_mutation_has_the_distribution_of_deap(start, eta):
    ours = mutated(np.random.default_rng(0).random((2, N, 1)), np.full((N, 1), start), np.array([eta]), 1.0, NUMBERS)[
        :, 0
    ]
    random.seed(0)
    theirs = [tools.mutPolynomialBounded([start], eta, 0.0, 1.0, indpb=1.0)[0][0] for _ in range(N)]
    assert ks_2samp(ours, theirs).pvalue > 0.001


@pytest.mark.filterwarnings("error")
def test_genes_stay_in_the_unit_cube_at_its_corners():
    rng = np.random.default_rng(1)
    corners = rng.integers(2, size=(500, 6)).astype(float)
    others = np.where(rng.random((500, 6)) < 0.5, corners, rng.random((500, 6)))
    numbers = np.zeros(6, dtype=bool)
    children = crossed(rng.random((3, 500, 6)), corners, others, 5.0, numbers)
    for eta in (1.0, 1e6):
        found = mutated(rng.random((2, 500, 6)), children, np.full(6, eta), 1.0, numbers)
        assert np.isfinite(found).all()
        assert found.min() >= 0.0
        assert found.max() <= 1.0


def test_a_category_comes_from_a_parent_or_from_anywhere_if_it_mutates():
    rng = np.random.default_rng(2)
    first, second = np.full((N, 1), 0.125), np.full((N, 1), 0.875)
    made = crossed(rng.random((3, N, 1)), first, second, 5.0, CATEGORIES)
    assert set(made[:, 0]) == {0.125, 0.875}
    assert (made == 0.875).mean() == pytest.approx(0.25, abs=0.03), "half of the genes, half of them from the second"
    changed = mutated(rng.random((2, N, 1)), first, np.array([5.0]), 0.6, CATEGORIES)
    assert (changed != first).mean() == pytest.approx(0.3, abs=0.03)
    assert np.ptp(changed) > 0.9
