"""Step vectors are summed with fewer bits per element on the network."""

from __future__ import annotations

import math

import numpy as np

from mpi_learn.algorithms.reduction import Reduction
from mpi_learn.compression.encodings import Encoding
from mpi_learn.compression.error_feedback import ErrorFeedback, decoded
from mpi_learn.flat_layout import WEIGHT, FlatLayout
from mpi_learn.mpi.communicators import Communicator, all_to_all, gathered


class EncodedSum(Reduction):
    """Each rank sums its part of the encoded gradients, then all ranks gather the encoded parts.

    Both messages have error feedback, as in DoubleSqueeze (Tang et al. 2019). What is held back is a mean over samples,
    not a sum: otherwise the last step of an epoch, with few samples, would be dominated by the remainders of steps with
    many samples. The sums and counts of the step vector are the header: they are exact and sent first.

    With P ranks, a rank sends 4 (P - 1) bytes per element of the header, and 2 (P - 1) messages of ⌈n / P⌉ elements.

    Args:
        encoding: The form of the messages.
        layout: Layout of the gradient, with or without counts.
        size: Number of ranks.
    """

    def __init__(self, encoding: Encoding, layout: FlatLayout, size: int) -> None:
        self._encoding, self._layout, self._width = encoding, layout, math.ceil(layout.size / size)
        self._gradients = ErrorFeedback(encoding, self._width * size, size)
        self._sums = ErrorFeedback(encoding, self._width)

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        if comm.size == 1:
            return
        layout, n = self._layout, self._layout.size
        # of every rank: counts and sums, exact, so that all know the weights by which the messages are multiplied
        headers = gathered(comm, np.append(step[layout.counts], step[n:]))
        weights, resting = headers[:, layout.counts.size + WEIGHT], layout.resting(step)
        own, total = weights[comm.rank], weights.sum()
        step[n:] = headers[:, layout.counts.size :].sum(0)
        if total == 0:  # the step changes nothing: every rank keeps what it holds back
            return
        mean = np.zeros(self._width * comm.size, np.float32)
        if own != 0:
            np.divide(step[:n], own, out=mean[:n])
            mean[layout.counts] = 0
        else:  # without samples there is nothing to send, and what is held back stays
            resting = np.arange(n)
        # first half: each rank receives its part of every gradient, and adds it to the mean over all samples
        theirs = np.split(all_to_all(comm, self._gradients.encode(mean, resting)), comm.size)
        part = np.zeros(self._width, np.float32)
        for weight, message in zip(weights, theirs, strict=True):
            part += weight / total * self._encoding.decode(message, self._width)
        # second half: all ranks gather the parts, without the elements that no rank has used
        step[layout.counts] = headers[:, : layout.counts.size].sum(0)
        resting = layout.resting(step) - comm.rank * self._width
        message = self._sums.encode(part, resting[(resting >= 0) & (resting < self._width)])
        counts = step[layout.counts]  # among the elements that are overwritten
        step[:n] = total * decoded(self._encoding, gathered(comm, message).ravel(), mean.size, comm.size)[:n]
        step[layout.counts] = counts

    def rank_state(self) -> dict[str, np.ndarray]:
        return {"held_back": self._gradients.held_back, "held_back_of_sums": self._sums.held_back}
