"""Notices ranks that give no sign of life: their host is frozen, or the network between it and rank 0 is cut.

MPI reports the death of a process, but not a host that stops answering. A second thread of each worker therefore sends
`Alive` at intervals, also while user code runs.
"""

from __future__ import annotations

CHECKS = 8
"""The ranks are checked this number of times per time limit."""


class SilentRanks:
    """When each rank was last heard. Times are those of the clock of the pool, which does not run while rank 0 is busy.

    Args:
        limit_s: Time without an `Alive` after which a rank is silent, in seconds; None for no limit.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self._heard_s: dict[int, float] = {}
        self._next_check_s = 0.0

    def hear(self, rank: int, now_s: float) -> None:
        """Records a sign of life. Ranks that have never given one are not judged: they may have no second thread."""
        self._heard_s[rank] = now_s

    def take(self, now_s: float) -> set[int]:
        """The ranks that have become silent since the last call; they are not judged again before they are heard."""
        if self.limit_s is None or now_s < self._next_check_s:
            return set()
        self._next_check_s = now_s + self.limit_s / CHECKS
        silent = {rank for rank, heard_s in self._heard_s.items() if now_s - heard_s > self.limit_s}
        for rank in silent:
            del self._heard_s[rank]
        return silent
