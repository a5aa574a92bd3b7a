"""Fewer bytes on the wire for a sum over ranks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from mpi_learn.flat_layout import N_SAMPLES
from mpi_learn.mpi.collectives import gathered, scattered, sum_in_place
from mpi_learn.mpi.communicators import Communicator

LARGEST_HALF = 6e4


class Compression(ABC):
    """How a step vector is summed over ranks. The sums behind the gradient are always exact."""

    @abstractmethod
    def sum(self, comm: Communicator, step: np.ndarray, n: int) -> None:
        """Replaces `step`, (n + sums,) float32, by its sum over all ranks: the same on all. Collective over `comm`."""

    def arrays(self, n: int) -> dict[str, np.ndarray]:
        """What was kept back for later, of vectors of `n` elements; the very arrays, so that they can be filled."""
        return {}


class Uncompressed(Compression):
    """One Allreduce in place."""

    def sum(self, comm: Communicator, step: np.ndarray, n: int) -> None:
        """See `Compression.sum`."""
        sum_in_place(comm, step)


class HalfPrecision(Compression):
    """16 bits an element on the wire, sums in 32: each rank adds up its part of the vector, then all gather the parts.

    Every message is scaled by its largest element, so that nothing overflows.
    """

    def sum(self, comm: Communicator, step: np.ndarray, n: int) -> None:
        """See `Compression.sum`."""
        if comm.size == 1:
            return
        width = math.ceil(n / comm.size)
        halves = np.zeros(width * comm.size, np.float16)
        scale = _scale(step[:n])
        halves[:n] = step[:n] / scale
        told = gathered(comm, np.append(step[n:], scale))
        step[n:] = told[:, :-1].sum(0)
        theirs = scattered(comm, halves.view(np.uint16)).view(np.float16).reshape(comm.size, width)
        part = (theirs.astype(np.float32) * told[:, -1:]).sum(0)
        scale = _scale(part)
        scales = gathered(comm, np.array([scale], np.float32))
        parts = gathered(comm, (part / scale).astype(np.float16).view(np.uint16)).view(np.float16)
        step[:n] = (parts.astype(np.float32) * scales).ravel()[:n]


class TopFraction(Compression):
    """Only the largest elements travel; the rest is kept and added to the next gradient (error feedback).

    After Lin et al. 2018, "Deep gradient compression", without its momentum correction. What is kept is a mean over
    samples, not a sum: else an epoch's last step, of few samples, would be swamped by what those of many left.

    Args:
        fraction: Of the elements, that travel.
    """

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction
        self._kept = np.zeros(0, np.float32)

    def sum(self, comm: Communicator, step: np.ndarray, n: int) -> None:
        """See `Compression.sum`."""
        kept, n_samples = self.arrays(n)["kept"], step[n + N_SAMPLES]
        k = max(1, int(self.fraction * n))
        if n_samples > 0:
            kept += step[:n] / n_samples
        places = np.argpartition(np.abs(kept), n - k)[n - k :].astype(np.int32)
        values = n_samples * kept[places]
        if n_samples > 0:
            kept[places] = 0
        all_places, all_values = gathered(comm, places), gathered(comm, np.concatenate([values, step[n:]]))
        step[:n] = 0
        for where, what in zip(all_places, all_values, strict=True):
            step[where] += what[:k]
        step[n:] = all_values[:, k:].sum(0)

    def arrays(self, n: int) -> dict[str, np.ndarray]:
        """The rest of the gradients so far."""
        if self._kept.size != n:
            self._kept = np.zeros(n, np.float32)
        return {"kept": self._kept}


def _scale(vector: np.ndarray) -> np.float32:
    """What to divide by so that 16 bits hold the largest element."""
    largest = float(np.abs(vector).max(initial=0.0))
    return np.float32(largest / LARGEST_HALF if largest > 0 else 1.0)


def make_compression(name: str, fraction: float) -> Compression:
    """The compression that the configuration names: ``none``, ``float16`` or ``top-k``."""
    return {"none": Uncompressed, "float16": HalfPrecision, "top-k": lambda: TopFraction(fraction)}[name]()
