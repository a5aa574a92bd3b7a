"""Samples in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mpi_learn.data.files.array_kind import FEATURE_DTYPE, label_dtype

Selection = np.ndarray | slice


@dataclass(frozen=True)
class Samples:
    """Arrays of the same length: sample i is the i-th entry of each.

    Held as they are stored if that is small (uint8 images stay uint8); `take` gives them as a model takes them.

    Args:
        x: One array for each input of the model, the first axis being the samples.
        y: One for each output; none for a model that learns from the inputs alone.
    """

    x: tuple[np.ndarray, ...]
    y: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.x[0]) if self.x else 0

    def labels(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All labels, in one go or some at a time."""
        yield self.y

    def take(self, indices: Selection) -> Samples:
        """A copy of some samples, as models take them.

        Args:
            indices: Shape (n,), integers; or a slice.

        Returns:
            Inputs as float32, outputs as float32 if they are real numbers and int64 if they are whole ones; each array
            of length n and of its own memory.
        """
        return Samples(
            tuple(_copied(array, indices, FEATURE_DTYPE) for array in self.x),
            tuple(_copied(array, indices, label_dtype(array.dtype)) for array in self.y),
        )


def _copied(array: np.ndarray, indices: Selection, dtype: np.dtype) -> np.ndarray:
    if isinstance(indices, slice):
        return np.array(array[indices], dtype)
    return array.take(indices, axis=0).astype(dtype, copy=False)
