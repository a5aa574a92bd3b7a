"""A sum over ranks in pieces, each begun as soon as back-propagation has come so far.

After Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.3.
"""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.reduction import Compression
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.mpi.collectives import Request, is_done, sum_in_place, sum_later, wait_for_all
from mpi_learn.mpi.communicators import Communicator


class Buckets(Compression):
    """Sums a step vector bucket by bucket, from its end on, as back-propagation ends with the first layers.

    All ranks begin the same buckets in the same order, whatever their frameworks have ready when.

    Args:
        comm: Of all workers.
        layout: The arrays in the vector.
        n_bytes: A bucket is closed as soon as it has so many.
    """

    def __init__(self, comm: Communicator, layout: FlatLayout, n_bytes: int) -> None:
        self.comm = comm
        self.buckets = layout.buckets(n_bytes)
        self._bounds = layout.bounds.tolist()
        self._bucket_of = [number for number, arrays in enumerate(self.buckets) for _ in arrays][::-1]
        self._forget()

    @property
    def n_open(self) -> int:
        """So many elements, the vector's first ones, are in no bucket that is begun."""
        return self._bounds[self.buckets[self._n_begun - 1].start] if self._n_begun else self._bounds[-1]

    def ready(self, array: int) -> list[slice]:
        """Notes that an array's gradient is complete.

        Returns:
            The parts of the vector to `begin` now, in this order.
        """
        for request in self._requests:
            is_done(request)  # neither Open MPI nor MPICH gets on with a sum that nobody asks for
        self._n_missing[self._bucket_of[array]] -= 1
        parts, number = [], self._n_begun
        while number < len(self.buckets) and not self._n_missing[number]:
            parts.append(self._part(number))
            number += 1
        return parts

    def begin(self, vector: np.ndarray, part: slice) -> None:
        """Begins to sum a part of `vector`, which must stay untouched until `sum` is over."""
        self._requests.append(sum_later(self.comm, vector[part]))
        self._n_begun += 1

    def sum(self, comm: Communicator, step: np.ndarray, n: int) -> None:
        """See `Compression.sum`: begins what is not begun, then waits for all."""
        for number in range(self._n_begun, len(self.buckets)):
            self.begin(step, self._part(number))
        sum_in_place(comm, step[n:])
        wait_for_all(self._requests)
        self._forget()

    def _part(self, number: int) -> slice:
        arrays = self.buckets[number]
        return slice(self._bounds[arrays.start], self._bounds[arrays.stop])

    def _forget(self) -> None:
        self._requests: list[Request] = []
        self._n_begun, self._n_missing = 0, [len(arrays) for arrays in self.buckets]
