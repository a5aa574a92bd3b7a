"""Detects blocks that cause failures: their trials fail far more often than those of other blocks."""

from __future__ import annotations

from collections import Counter

MIN_FAILURES = 5
"""Fewest consecutive failed trials after which a block is retired, if trials rarely fail on other blocks."""

UNLIKELY = 1e-6
"""A block is retired if its consecutive failures are less probable than this at the failure rate of the others."""


class BlockHealth:
    """Counts failed trials by block."""

    def __init__(self) -> None:
        self._ended: Counter[int] = Counter()
        self._failed: Counter[int] = Counter()
        self._in_a_row: Counter[int] = Counter()

    def record(self, block: int, has_failed: bool) -> None:
        """Records that a trial ended on this block."""
        self._ended[block] += 1
        self._failed[block] += has_failed
        self._in_a_row[block] = self._in_a_row[block] + 1 if has_failed else 0

    def in_a_row(self, block: int) -> int:
        """Number of consecutive failed trials on this block."""
        return self._in_a_row[block]

    def is_unhealthy(self, block: int) -> bool:
        """Whether the block's consecutive failures are very improbable at the failure rate of the other blocks."""
        if (n_in_a_row := self._in_a_row[block]) < MIN_FAILURES:
            return False
        n_ended = self._ended.total() - self._ended[block]
        n_failed = self._failed.total() - self._failed[block]
        rate = (n_failed + 1) / (n_ended + 2)  # Laplace's rule of succession
        return n_failed < n_ended and rate**n_in_a_row < UNLIKELY
