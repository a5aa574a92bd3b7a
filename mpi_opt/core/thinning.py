"""A part of a long list: its best elements, and some of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def thinned(ranked: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` elements of `ranked`: the first `most` // 2, then elements that are evenly spread over the rest.

    Args:
        ranked: The elements, best first.
        most: The largest number of elements to return.
    """
    if len(ranked) <= most:
        return ranked
    n_first = most // 2
    step = (len(ranked) - n_first) / (most - n_first)
    return [*ranked[:n_first], *(ranked[n_first + int(index * step)] for index in range(most - n_first))]
