"""A batch in parts."""

from __future__ import annotations

from itertools import pairwise


def micro_batches(n: int, wanted: int, least: int = 1) -> list[slice]:
    """Divides the samples of a batch into `wanted` parts whose sizes differ by at most one.

    Args:
        n: Number of samples.
        wanted: Number of parts; a small batch has fewer.
        least: The smallest part that can be trained with.
    """
    parts = min(wanted, max(n // least, min(n, 1)))
    bounds = [n * index // parts for index in range(parts + 1)] if parts else [0]
    return [slice(first, stop) for first, stop in pairwise(bounds)]
