"""The clock of the coordinator, which pauses while the coordinator receives no messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_GAP_S = 1.0
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
        return self._counted_s + min(time.monotonic() - self._since_s, LONGEST_GAP_S)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Counts all of the time inside the context, in which messages are received."""
        began_s = time.monotonic()
        self._counted_s = self.now_s
        try:
            yield
        finally:
            self._since_s = time.monotonic()
            self._counted_s += self._since_s - began_s
