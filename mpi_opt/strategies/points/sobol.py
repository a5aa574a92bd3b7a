"""A scrambled Sobol sequence, by number."""

from __future__ import annotations

import warnings
from typing import final

import numpy as np
from scipy.stats import qmc

BLOCK = 128


@final
class SobolPoints:
    """Point k is a function of the number of dimensions, the seed and k alone.

    Args:
        n_dimensions: From 1 to 21201.
        seed: Any integer.
    """

    def __init__(self, n_dimensions: int, seed: int) -> None:
        self._n_dimensions, self._seed = n_dimensions, abs(seed)
        self._first, self._block = -1, np.empty((0, n_dimensions))

    def point(self, number: int) -> np.ndarray:
        """Point `number`: shape (n_dimensions,), float64, in [0, 1)."""
        first = number - number % BLOCK
        if first != self._first:
            engine = qmc.Sobol(self._n_dimensions, scramble=True, rng=np.random.default_rng([self._seed, BLOCK]))
            if first:
                engine.fast_forward(first)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # it prefers to be asked for everything at once
                self._block = engine.random(BLOCK)
            self._first = first
        return self._block[number - first]
