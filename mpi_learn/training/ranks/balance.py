"""The measured speeds of ranks, by which they share the steps of the next epoch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def speeds(measured: Sequence[tuple[int, float]]) -> list[float]:
    """The speed of each rank in samples per second; the median one for a rank without a measurement.

    Args:
        measured: Of each rank, the samples of an epoch and the seconds in which it computed their gradients.
    """
    known = [n / seconds for n, seconds in measured if n and seconds > 0]
    typical = median(known) if known else 1.0
    return [n / seconds if n and seconds > 0 else typical for n, seconds in measured]
