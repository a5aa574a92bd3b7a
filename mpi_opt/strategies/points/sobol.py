"""A scrambled Sobol sequence of points of a search space (Owen, J. Complexity 14, 1998)."""

from __future__ import annotations

import warnings
from typing import final

import numpy as np
from scipy.stats import qmc

from mpi_opt.core.arrays import Floats
from mpi_opt.core.search_space.space import Parameters, Space
from mpi_opt.strategies.points.beliefs import Beliefs
from mpi_opt.strategies.points.bookkeeping import Bookkeeping
from mpi_opt.strategies.points.sampling import Sampler

CHUNK = 128
"""Points of the sequence are computed in chunks of this size, because a chunk costs hardly more than a point."""


@final
class SobolDesign:
    """Space-filling points of a search space of at most 21201 dimensions.

    Point k is a function of the space, the seed and k alone; with beliefs, except for the expected point.

    Args:
        space: The search space.
        seed: The seed.
        beliefs: With beliefs of the user, the expected point is the first one, and every second point is drawn from
            them.
    """

    def __init__(self, space: Space, seed: int, beliefs: Beliefs | None = None) -> None:
        self._space, self._seed, self._beliefs = space, seed, beliefs
        self._sampler = Sampler(space, seed)
        self._first, self._chunk = -1, np.empty((0, len(space)))

    def new_point(self, bookkeeping: Bookkeeping) -> Parameters:
        """The expected point, until it was tried; then the point with the number of the next proposal.

        A random point replaces one that is not accepted.

        Raises:
            SearchFailed: No point that satisfies the constraints was found.
        """
        if self._beliefs and bookkeeping.accepts(expected := self._space.decode(self._beliefs.mode(self._units(0)))):
            return expected
        point = self._point(bookkeeping.n_asked)
        return point if bookkeeping.accepts(point) else self._sampler.new_point(bookkeeping)

    def _point(self, number: int) -> Parameters:
        units = self._units(number)
        return self._space.decode(self._beliefs.drawn(units) if self._beliefs and number % 2 == 0 else units)

    def _units(self, number: int) -> Floats:
        first = number - number % CHUNK
        if first != self._first:
            engine = qmc.Sobol(len(self._space), scramble=True, rng=np.random.default_rng([self._seed, CHUNK]))
            if first:
                engine.fast_forward(first)
            with warnings.catch_warnings():
                # SciPy warns that the balance properties need a power of two of points from the start
                warnings.simplefilter("ignore", UserWarning)
                self._chunk = engine.random(CHUNK)
            self._first = first
        found: Floats = self._chunk[number - first]
        return found
