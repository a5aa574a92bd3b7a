"""Whether, and why, a search is to end before its trials are done."""

from __future__ import annotations

import time

from mpi_opt.coordinator.halt import Halt
from mpi_opt.core.limits import TimeLimit


class Ending:
    """Somebody wants it, or the time is up. The clock begins with the object.

    Args:
        halt: Whether somebody wants the search to end.
        time_limit_s: Seconds that it may take (None: any).
    """

    def __init__(self, halt: Halt, time_limit_s: float | None) -> None:
        self.halt, self._limit = halt, TimeLimit(time_limit_s)
        self._began = time.monotonic()

    @property
    def reason(self) -> str | None:
        """Why the search is to end; None: it is not."""
        if self.halt.reason is not None:
            return f"got {self.halt.reason}"
        return "the time limit is reached" if self._limit.is_over(time.monotonic() - self._began) else None

    def is_due(self) -> bool:
        """Whether there is no time to wait, for the store or for a trial."""
        return self.reason is not None

    def take(self, duration_s: float) -> None:
        """Learns how long a trial took."""
        self._limit.take(duration_s)

    def has_time_for_one(self) -> bool:
        """Whether a trial that begins now is likely to end in time."""
        return self._limit.has_time_for_one(time.monotonic() - self._began)
