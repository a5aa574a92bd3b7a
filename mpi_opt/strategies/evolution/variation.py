"""Crossover and mutation of many points of the unit cube at once, in the bounded forms of Deb's code for NSGA-II.

A child per call would cost more in the interpreter than in arithmetic: fifty children cost about as much as one.
"""

from __future__ import annotations

import numpy as np

from mpi_opt.core.arrays import Bools, Floats

MIN_DIFFERENCE = 1e-14
"""Genes of two parents that differ by less are equal, because the crossover divides by their difference."""


def crossed(rng: np.random.Generator, first: Floats, second: Floats, eta: float, is_category: Bools) -> Floats:
    """Simulated binary crossover (Deb and Agrawal, Complex Systems 9, 1995): one child of each pair of parents.

    Each gene is recombined with probability 1/2, otherwise it is that of the first parent. A category is that of either
    parent, because a category between two others means nothing.

    Args:
        rng: The source of random numbers.
        first: Shape (m, n_dimensions), in [0, 1].
        second: The same shape.
        eta: Distribution index: the larger, the nearer are children to their parents.
        is_category: Shape (n_dimensions,), bool.

    Returns:
        Shape (m, n_dimensions).
    """
    is_recombined = rng.random(first.shape) < 0.5
    is_upper = rng.random(first.shape) < 0.5
    u = rng.random(first.shape)
    low, high = np.minimum(first, second), np.maximum(first, second)
    distance = np.maximum(high - low, MIN_DIFFERENCE)
    # the nearer a parent is to its bound, the less a child may be beyond it
    beta = 1.0 + 2.0 * np.where(is_upper, 1.0 - high, low) / distance
    alpha = 2.0 - beta ** -(eta + 1.0)
    # both are evaluated everywhere: where u exceeds 1 / alpha, the first is not used, and 2 - u alpha is positive
    spread = np.where(u <= 1.0 / alpha, u * alpha, 1.0 / (2.0 - u * alpha)) ** (1.0 / (eta + 1.0))
    middle, half = 0.5 * (low + high), 0.5 * spread * (high - low)
    numbers = np.clip(np.where(is_upper, middle + half, middle - half), 0.0, 1.0)
    either = np.where(is_upper, second, first)
    return np.where(is_recombined, np.where(is_category, either, numbers), first)


def mutated(rng: np.random.Generator, genes: Floats, etas: Floats, probability: float, is_category: Bools) -> Floats:
    """Polynomial mutation (Deb and Goyal, Computer Science and Informatics 26, 1996); a category is drawn at random.

    Args:
        rng: The source of random numbers.
        genes: Shape (m, n_dimensions), in [0, 1].
        etas: Shape (n_dimensions,): distribution indices, the larger, the shorter are the steps.
        probability: Probability that a number mutates. A category mutates half as often.
        is_category: Shape (n_dimensions,), bool.

    Returns:
        Shape (m, n_dimensions).
    """
    is_mutated = rng.random(genes.shape) < np.where(is_category, 0.5 * probability, probability)
    u = rng.random(genes.shape)
    power = 1.0 / (etas + 1.0)
    down = (2.0 * u + (1.0 - 2.0 * u) * (1.0 - genes) ** (etas + 1.0)) ** power - 1.0
    v = 1.0 - u
    up = 1.0 - (2.0 * v + (1.0 - 2.0 * v) * genes ** (etas + 1.0)) ** power
    moved = np.clip(genes + np.where(u < 0.5, down, up), 0.0, 1.0)
    return np.where(is_mutated, np.where(is_category, u, moved), genes)
