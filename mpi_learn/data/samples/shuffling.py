"""Random orders of samples and of blocks of samples, the same on every rank."""

from __future__ import annotations

import numpy as np


def shuffled(n: int, *keys: int) -> np.ndarray:
    """A permutation of 0, …, n - 1 that depends on `keys` alone, shape (n,), int64.

    Args:
        n: The number of entries.
        keys: The seed of the training, and further numbers such as that of the epoch.
    """
    return np.random.default_rng(keys).permutation(n)
