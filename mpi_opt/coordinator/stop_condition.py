"""Decides when a search ends before its trials are done: on request, at a time limit, or before its batch job ends."""

from __future__ import annotations

import math
import time
from bisect import insort

from mpi_learn.job.started_by import all_ranks_live, is_started_by_srun
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.job.time_limits import margin_s

FRACTION_IN_TIME = 0.9
"""A trial starts if at least this fraction of the earlier trials, started now, would end before the time limit."""

LOSS_S = 0.5
"""A batch system that cancels a job may end ranks on other hosts this long before rank 0, in seconds."""

COPY_S = 0.1
"""How long the end of a search waits for a second SIGTERM, in seconds. ``mpirun`` kills its ranks after 0.25 s."""

POLL_S = 0.005
"""Pause between two reads of the request, in seconds."""


class StopCondition:
    """Whether the search must end, and whether there is time for another trial. Time counts from the construction.

    Args:
        request: Requests to end the process.
        time_limit_s: Time limit of the search, in seconds; None for no limit.
        job_end_s: When the batch system ends this job, in seconds since 1970; None if unknown. The search ends
            `margin_s` before.
    """

    def __init__(
        self, request: StopRequest | None = None, time_limit_s: float | None = None, job_end_s: float | None = None
    ) -> None:
        self.request = request or StopRequest()
        self._limit_reason = "the time limit is reached"
        self._limit_s = math.inf if time_limit_s is None else time_limit_s
        if job_end_s is not None:
            left_s = job_end_s - time.time()
            left_s = max(left_s - margin_s(left_s), 1.0)
            if left_s < self._limit_s:
                self._limit_reason, self._limit_s = "the batch job is about to end", left_s
        self._durations_s: list[float] = []
        self._began_s = time.monotonic()

    @property
    def reason(self) -> str | None:
        """The reason why the search must end; None if it need not."""
        if self.request.signal_name is not None:
            return self.request.reason
        return self._limit_reason if time.monotonic() - self._began_s >= self._limit_s else None

    def is_due(self) -> bool:
        """Whether the search must end. It then waits no longer for the store, and only briefly for trials."""
        return self.reason is not None

    def add_duration(self, duration_s: float) -> None:
        """Records the duration of a trial."""
        if math.isfinite(self._limit_s):
            insort(self._durations_s, duration_s)

    def has_time_for_one(self) -> bool:
        """Whether a trial that starts now is likely to end in time. True while no duration is known."""
        ranked = self._durations_s
        likely_s = ranked[math.ceil(FRACTION_IN_TIME * len(ranked)) - 1] if ranked else 0.0
        return time.monotonic() - self._began_s + likely_s < self._limit_s

    def may_be_death_of_a_rank(self) -> bool:
        """Whether the request may be the consequence of a rank's death, without protection. Does not wait.

        Open MPI's ``mpirun`` then sends SIGTERM to the other ranks, and ``srun`` SIGKILL. The request is a cancellation
        if all ranks are alive or if a batch system has sent the signal as well, which may arrive later.
        """
        if self.request.signal_name != "SIGTERM" or self.request.has_copies:
            return False
        return not (is_started_by_srun() or all_ranks_live())

    def await_copy(self) -> None:
        """Waits until a second SIGTERM has arrived, at most `COPY_S`."""
        until = time.monotonic() + COPY_S
        while not self.request.has_copies and time.monotonic() < until:
            time.sleep(POLL_S)

    def wait_for_cancellation(self) -> bool:
        """Whether a rank may be lost because the job is being cancelled. Waits at most `LOSS_S` for the request."""
        until = time.monotonic() + LOSS_S
        while self.request.signal_name is None and time.monotonic() < until:
            time.sleep(POLL_S)
        return self.request.signal_name is not None
