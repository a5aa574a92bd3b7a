"""A model's arrays as views of one flat float32 vector, and the sums that ride behind a gradient.

A *step vector* is what one step of one rank gives: the gradient of the summed loss over the rank's samples, and behind
it the rank's *sums*: the number of samples, the summed loss, the states of the metrics, and last two slots that are
zero unless the algorithm has something to say. All of it adds up over ranks, so one collective carries it, and uneven
batches weigh as they should.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

ALIGNMENT_BYTES = 64
"""Where frameworks and vector units want an array to begin."""

N_SAMPLES, LOSS, FIRST_METRIC = 0, 1, 2
"""Where the sums hold what."""
WORD, FAILED = -2, -1
"""The last two of the sums are the algorithm's: a word to the other ranks, and how many ranks failed."""
N_WORDS = 2


def aligned_empty(n: int, dtype: np.dtype | type = np.float32) -> np.ndarray:
    """An uninitialised vector of `n` that begins at a multiple of 64 bytes."""
    dtype = np.dtype(dtype)
    memory = np.empty(n * dtype.itemsize + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + n * dtype.itemsize].view(dtype)


@dataclass(frozen=True)
class FlatLayout:
    """Which part of a flat vector is which array.

    Attributes:
        shapes: Of the arrays, in order; they lie one behind the other.
        models: Where the vector holds several models, each moved by an optimizer of its own: how many arrays each has.
            The last array of each is one number, which in a gradient says of how many samples this model's part
            speaks: 0 while the model rests. Among the weights it stays 0.
    """

    shapes: tuple[tuple[int, ...], ...]
    models: tuple[int, ...] = ()

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where the arrays begin and end, shape (number of arrays + 1,) int64."""
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

    @property
    def size(self) -> int:
        """The length of the vector."""
        return int(self.bounds[-1])

    def places(self) -> list[tuple[slice, FlatLayout]]:
        """Of each of `models`: where its weights lie, and their layout; the number of samples stands behind them."""
        found, first = [], 0
        for n in self.models:
            last = first + n - 1
            found.append((slice(int(self.bounds[first]), int(self.bounds[last])), FlatLayout(self.shapes[first:last])))
            first += n
        return found

    def views(self, vector: np.ndarray) -> list[np.ndarray]:
        """The arrays that lie in `vector`, not copied; what stands behind them is left out."""
        spans = zip(self.bounds[:-1], self.bounds[1:], self.shapes, strict=True)
        return [vector[start:end].reshape(shape) for start, end, shape in spans]

    def buckets(self, n_bytes: int) -> list[range]:
        """The arrays in groups of neighbours of at least `n_bytes` each, the last array's group first."""
        groups, stop = [], len(self.shapes)
        for first in range(stop - 1, -1, -1):
            if first == 0 or (self.bounds[stop] - self.bounds[first]) * np.dtype(np.float32).itemsize >= n_bytes:
                groups.append(range(first, stop))
                stop = first
        return groups

    def flattened(self, arrays: list[np.ndarray]) -> np.ndarray:
        """The arrays copied into a new vector, float32."""
        vector = aligned_empty(self.size)
        for view, array in zip(self.views(vector), arrays, strict=True):
            view[...] = array
        return vector
