"""Ends a training after an epoch, on request or before its batch job ends."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mpi_learn.job.slurm import job_end_s, margin_s
from mpi_learn.job.stop_request import StopRequest

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator


class Interruption:
    """Decides after every epoch whether the training ends there.

    A training without checkpoints has nothing to save: a request that reaches all ranks ends it at once.

    Args:
        request: The request to this rank. After an epoch the request to rank 0 decides.
        has_checkpoint: Whether the training writes checkpoints, from which the same command continues.

    Attributes:
        reason: Why the training ends; None while it runs. The same on all ranks.
    """

    def __init__(self, request: StopRequest, world: Communicator, *, has_checkpoint: bool) -> None:
        self.request, self.world = request, world
        self.reason: str | None = None
        self._epoch_began = time.monotonic()
        self._must_end_s = float("inf")
        if not has_checkpoint:
            request.on_first = self._end_at_once
            if request.signal_name is not None:
                request.on_first()
        elif world.rank == 0 and (end_s := job_end_s()) is not None:
            request.job_end_s = end_s
            self._must_end_s = end_s - margin_s(end_s - time.time())

    def after_epoch(self, epoch: int, metrics: dict[str, float]) -> bool:
        """Whether the training ends now. Collective over `world`."""
        self.reason = self.world.bcast(self._reason(), root=0)
        return self.reason is not None

    def _reason(self) -> str | None:
        began, self._epoch_began = self._epoch_began, time.monotonic()
        if self.request.signal_name is not None:
            return self.request.reason
        lasted_s = self._epoch_began - began
        return "the batch job is about to end" if time.time() + lasted_s > self._must_end_s else None

    def _end_at_once(self) -> None:
        """Ends this process, in a signal handler.

        SIGUSR1 and SIGINT reach all ranks, by ``mpirun`` or a terminal. SIGTERM may have been sent to this rank alone,
        and the others would not notice the end of this process.
        """
        if self.world.size > 1 and self.request.signal_name == "SIGTERM":
            return
        if self.world.rank == 0:
            text = f"mpi-learn: {self.request.reason}; without `checkpoint:` the same command starts from the beginning"
            os.write(2, f"{text}\n".encode())  # print is not reentrant
        os._exit(self.request.status)
