"""When a search ends before its trials are done: on request, at a time limit, at the end of its batch job."""

from __future__ import annotations

import time

from mpi_learn.cli.launchers import all_ranks_live
from mpi_learn.cli.slurm import margin_s
from mpi_learn.cli.stop_request import StopRequest
from mpi_opt.core.limits import TimeLimit

LOSS_S = 0.5
"""A batch system that ends a job may reach the ranks of other hosts this long before rank 0."""

COPY_S = 0.05
"""A batch system's SIGTERM and ``mpirun``'s copy of it arrive within this time."""


class StopCondition:
    """Whether the search must end, and whether there is time for another trial. The clock starts with the object.

    Args:
        request: Whether the process was asked to end.
        time_limit_s: Seconds that the search may take; None: any.
        job_end_s: When the batch system ends this job, in seconds since 1970; None: not known. The search ends
            `margin_s` before.
    """

    def __init__(
        self, request: StopRequest | None = None, time_limit_s: float | None = None, job_end_s: float | None = None
    ) -> None:
        self.request = request or StopRequest()
        self._what, limit_s = "the time limit is reached", time_limit_s
        if job_end_s is not None:
            left_s = job_end_s - time.time()
            left_s = max(left_s - margin_s(left_s), 1.0)
            if limit_s is None or left_s < limit_s:
                self._what, limit_s = "the batch job is about to end", left_s
        self._limit = TimeLimit(limit_s)
        self._began = time.monotonic()

    @property
    def reason(self) -> str | None:
        """Why the search must end; None: it need not."""
        if self.request.reason is not None:
            return self.request.why
        return self._what if self._limit.is_over(time.monotonic() - self._began) else None

    def is_due(self) -> bool:
        """Whether the search must end: it waits neither for the store nor for a trial."""
        return self.reason is not None

    def take(self, duration_s: float) -> None:
        """Records how long a trial took."""
        self._limit.take(duration_s)

    def has_time_for_one(self) -> bool:
        """Whether a trial that begins now is likely to end in time."""
        return self._limit.has_time_for_one(time.monotonic() - self._began)

    def may_be_a_death(self) -> bool:
        """Whether the request may be the consequence of a rank's death, in a world without protection.

        Open MPI's ``mpirun`` then sends SIGTERM to the other ranks. It is a cancellation if all ranks are alive, or if
        a batch system sends the signal as well.
        """
        if self.request.reason != "SIGTERM" or all_ranks_live():
            return False
        time.sleep(COPY_S)
        return not self.request.has_copies

    def may_explain_a_loss(self) -> bool:
        """Whether a rank may be lost because the job is being cancelled. Waits up to `LOSS_S` for the request."""
        until = time.monotonic() + LOSS_S
        while self.request.reason is None and time.monotonic() < until:
            time.sleep(COPY_S)
        return self.request.reason is not None
