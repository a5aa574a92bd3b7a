"""A model of the time of a training step: computation, and a ring Allreduce of the gradient.

    t(p) = t_compute + 2 (p - 1) (latency + bytes / (p * bandwidth))

where p is the number of ranks. A ring Allreduce has 2 (p - 1) steps, in each of which every rank sends a p-th of the
vector (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) 117). Batches are read during the computation and
cost nothing. `fit` finds latency and bandwidth from measured times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls


@dataclass(frozen=True)
class Link:
    """The connection between neighbouring ranks of the ring.

    Attributes:
        latency_s: Time of a step of the ring without the transfer, in seconds.
        bytes_per_s: Transfer rate.
    """

    latency_s: float
    bytes_per_s: float

    def allreduce_s(self, n_bytes: float, ranks: int) -> float:
        """Seconds of an Allreduce of `n_bytes` over `ranks` ranks."""
        return 2 * (ranks - 1) * (self.latency_s + n_bytes / (ranks * self.bytes_per_s))

    def step_s(self, compute_s: float, n_bytes: float, ranks: int) -> float:
        """Seconds of a training step."""
        return compute_s + self.allreduce_s(n_bytes, ranks)


def fit(measured: Iterable[tuple[int, int, float]]) -> Link:
    """The link with the smallest sum of squared relative errors, for (ranks, bytes, seconds) of Allreduces."""
    ranks, n_bytes, seconds = (np.array(column, float) for column in zip(*measured, strict=True))
    steps = 2 * (ranks - 1)
    coefficients, _ = nnls(np.stack([steps, steps * n_bytes / ranks], axis=1) / seconds[:, None], np.ones(len(seconds)))
    latency_s, s_per_byte = coefficients
    return Link(float(latency_s), 1 / max(float(s_per_byte), 1e-15))
