"""The clock of the coordinator, by which blocks are late: it pauses while rank 0 is busy."""

from __future__ import annotations

import time

MAX_GAP_S = 1.0
"""The clock counts at most this much of a gap between two receptions, in seconds."""


class ListeningClock:
    """Counts the time in which messages can arrive.

    The coordinator receives no messages while it waits for its store. The clock then pauses, so that blocks that answer
    in this time are not considered late.
    """

    def __init__(self) -> None:
        self._counted_s, self._since_s = 0.0, time.monotonic()

    @property
    def now_s(self) -> float:
        """The time, in seconds since the creation of the clock."""
        return self._counted_s + min(time.monotonic() - self._since_s, MAX_GAP_S)

    def begin_listening(self) -> None:
        """Counts all of the time from now to `end_listening`, in which messages are received."""
        self._counted_s, self._since_s = self.now_s, time.monotonic()

    def end_listening(self) -> None:
        """Counts the time since `begin_listening`."""
        now_s = time.monotonic()
        self._counted_s += now_s - self._since_s
        self._since_s = now_s
