"""The clock of the coordinator, by which blocks are late: it pauses while rank 0 is busy or stopped."""

from __future__ import annotations

import time

MAX_GAP_S = 1.0
"""The clock counts at most this much of a reception, and of a gap between two of them, in seconds."""


class ListeningClock:
    """Counts the time in which messages can arrive.

    The coordinator receives no messages while it waits for its store, or while its process is stopped, which may happen
    during a reception, too. The clock then pauses, so that blocks that answer in this time are not considered late.
    """

    def __init__(self) -> None:
        self._counted_s, self._since_s = 0.0, time.monotonic()

    @property
    def now_s(self) -> float:
        """The time, in seconds since the creation of the clock."""
        return self._counted_s + min(time.monotonic() - self._since_s, MAX_GAP_S)

    def count(self) -> None:
        """Counts the time since the last call; to be called before and after each reception."""
        self._counted_s, self._since_s = self.now_s, time.monotonic()
