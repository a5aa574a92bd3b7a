"""How step vectors are summed over ranks: exactly, or with fewer bytes on the network."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.flat_layout import WEIGHT
from mpi_learn.mpi.collectives import all_to_all, gathered, sum_in_place
from mpi_learn.mpi.communicators import Communicator

LARGEST_HALF = 6e4
"""Slightly less than the largest value of float16, 65504."""


class Reduction(ABC):
    """Sums step vectors over ranks. The counts and sums behind the gradient are always exact."""

    @abstractmethod
    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        """Replaces `step`, (n + sums,) float32, by its sum over all ranks, the same on all. Collective over `comm`."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The remainders that this rank keeps for later steps: the arrays themselves, to be read or filled."""
        return {}


class ExactSum(Reduction):
    """One Allreduce in place."""

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        sum_in_place(comm, step)


class HalfPrecision(Reduction):
    """16 bits per element on the network, sums in 32 bits.

    Each rank sums its part of the vector, then all ranks gather the parts. Every message is scaled by its largest
    element, so that nothing overflows.

    Args:
        n: Length of the gradient, without counts.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        if comm.size == 1:
            return
        n, width = self.n, math.ceil(self.n / comm.size)
        halves = np.zeros(width * comm.size, np.float16)
        scale = _scale(step[:n])
        halves[:n] = step[:n] / scale
        sums_and_scales = gathered(comm, np.append(step[n:], scale))
        step[n:] = sums_and_scales[:, :-1].sum(0)
        theirs = all_to_all(comm, halves.view(np.uint16)).view(np.float16).reshape(comm.size, width)
        part = (theirs.astype(np.float32) * sums_and_scales[:, -1:]).sum(0)
        scale = _scale(part)
        scales = gathered(comm, np.array([scale], np.float32))
        parts = gathered(comm, (part / scale).astype(np.float16).view(np.uint16)).view(np.float16)
        step[:n] = (parts.astype(np.float32) * scales).ravel()[:n]


class TopFraction(Reduction):
    """Only the largest elements are sent; the others are added to the next gradient (error feedback).

    After Lin et al. 2018, "Deep gradient compression", without its momentum correction. What is held back is a mean
    over samples, not a sum: otherwise the last step of an epoch, with few samples, would be dominated by the remainders
    of steps with many samples.

    Args:
        fraction: Fraction of the elements that is sent.
        n: Length of the gradient, without counts.
        n_counts: Number of counts.
    """

    def __init__(self, fraction: float, n: int, n_counts: int = 0) -> None:
        self.n_sent, self._weight = max(1, int(fraction * n)), n + n_counts + WEIGHT
        self._held_back = np.zeros(n, np.float32)

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        held_back, k = self._held_back, self.n_sent
        n = held_back.size
        weight = step[self._weight]
        if weight != 0:
            held_back += step[:n] / weight
        places = np.argpartition(np.abs(held_back), n - k)[n - k :].astype(np.int32)
        values = weight * held_back[places]
        if weight != 0:
            held_back[places] = 0
        all_places, all_values = gathered(comm, places), gathered(comm, np.concatenate([values, step[n:]]))
        step[:n] = 0
        for places, values in zip(all_places, all_values, strict=True):
            step[places] += values[:k]
        step[n:] = all_values[:, k:].sum(0)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"held_back": self._held_back}


def _scale(vector: np.ndarray) -> np.float32:
    """The divisor with which 16 bits hold the largest element."""
    largest = float(np.abs(vector).max(initial=0.0))
    return np.float32(largest / LARGEST_HALF if largest > 0 else 1.0)


def make_reduction(options: AllReduce, n: int, n_counts: int = 0) -> Reduction:
    """The reduction that ``compression:`` names, for gradients of length `n`, of which `n_counts` are counts."""
    if options.compression == "float16":
        return HalfPrecision(n - n_counts)
    return TopFraction(options.fraction, n - n_counts, n_counts) if options.compression == "top-k" else ExactSum()
