"""A scrambled Sobol sequence of points of a search space (Owen, J. Complexity 14, 1998)."""

from __future__ import annotations

import warnings
from typing import final

import numpy as np
from scipy.stats import qmc

from mpi_opt.core.arrays import Floats
from mpi_opt.core.space import Parameters, Space
from mpi_opt.strategies.points.bookkeeping import Bookkeeping
from mpi_opt.strategies.points.sampling import Sampler

BLOCK = 128


@final
class SobolSequence:
    """Point k is a function of the number of dimensions, the seed and k alone.

    Args:
        n_dimensions: From 1 to 21201.
        seed: 0 or more.
    """

    def __init__(self, n_dimensions: int, seed: int) -> None:
        self._n_dimensions, self._seed = n_dimensions, seed
        self._first, self._block = -1, np.empty((0, n_dimensions))

    def point(self, number: int) -> Floats:
        """Point `number`: shape (n_dimensions,), float64, in [0, 1)."""
        first = number - number % BLOCK
        if first != self._first:
            engine = qmc.Sobol(self._n_dimensions, scramble=True, rng=np.random.default_rng([self._seed, BLOCK]))
            if first:
                engine.fast_forward(first)
            with warnings.catch_warnings():
                # SciPy warns that the balance properties need a power of two of points from the start
                warnings.simplefilter("ignore", UserWarning)
                self._block = engine.random(BLOCK)
            self._first = first
        point: Floats = self._block[number - first]
        return point


@final
class SobolDesign:
    """Space-filling points of a search space, by the number of the proposal.

    Args:
        space: The search space.
        seed: 0 or more.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._sequence, self._sampler = SobolSequence(len(space), seed), Sampler(space, seed)

    def new_point(self, bookkeeping: Bookkeeping) -> Parameters:
        """The point with the number of the next proposal; a random point if that one is not accepted.

        Raises:
            SearchFailed: No point that satisfies the constraints was found.
        """
        point = self._space.decode(self._sequence.point(bookkeeping.n_asked))
        return point if bookkeeping.accepts(point) else self._sampler.new_point(bookkeeping)
