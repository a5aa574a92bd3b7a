"""Ends a training after an epoch, on request or before its batch job ends."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING

from mpi_learn.job.slurm import job_end_s, margin_s
from mpi_learn.job.stop_request import StopRequest

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator
    from mpi_learn.training.configuration import TrainingConfiguration


class Interruption:
    """Decides after every epoch whether the training ends there. Its construction is collective over `world`.

    A training without checkpoints, and one that has not begun, has nothing to save: a request ends it at once. A rank
    that waits in the start may wait for one that never comes.

    Args:
        request: The request to this rank. After an epoch the request to rank 0 decides.

    Attributes:
        reason: Why the training ends; None while it runs. The same on all ranks.
    """

    def __init__(self, request: StopRequest, world: Communicator, configuration: TrainingConfiguration) -> None:
        self.request, self.world = request, world
        self.reason: str | None = None
        self._must_end_s = float("inf")
        # only rank 0 asks Slurm; without checkpoints every rank must know whether SIGUSR1 is a warning
        end_s = request.job_end_s = world.bcast(job_end_s() if world.rank == 0 else None, root=0)
        checkpoint, n_recent = configuration.checkpoint, configuration.validation.every
        if checkpoint is not None:
            n_recent = max(n_recent, checkpoint.every)
            if end_s is not None:
                self._must_end_s = end_s - margin_s(end_s - time.time())
        self._has_checkpoints, self._has_begun = checkpoint is not None, False
        request.on_first = self._end_at_once
        if request.signal_name is not None:
            request.on_first()
        self._reported_at_s = time.monotonic()
        # They cover one epoch with a validation or a checkpoint. A validation in a thread reports two epochs at once.
        self._intervals_s: deque[float] = deque(maxlen=n_recent)

    def before_first_epoch(self) -> None:
        """Begins to measure the epochs: data and model are loaded."""
        self._has_begun = True
        if self._has_checkpoints:
            self.request.on_first = lambda: None
        self._reported_at_s = time.monotonic()

    def after_epoch(self, epoch: int, metrics: dict[str, float]) -> bool:
        """Whether the training ends now. Collective over `world`.

        It is also called after it has returned True: with validation in a thread, for the epoch that was trained in the
        meantime.
        """
        if self.reason is None:
            self.reason = self.world.bcast(self._reason(), root=0)
        return self.reason is not None

    def _reason(self) -> str | None:
        before, self._reported_at_s = self._reported_at_s, time.monotonic()
        self._intervals_s.append(self._reported_at_s - before)
        if self.request.signal_name is not None:
            return self.request.reason
        is_late = time.time() + max(self._intervals_s) > self._must_end_s
        return "the batch job is about to end" if is_late else None

    def _end_at_once(self) -> None:
        """Ends this process, in a signal handler.

        SIGUSR1 and SIGINT reach all ranks, by ``mpirun`` or a terminal. SIGTERM may have been sent to this rank alone,
        and the others would not notice the end of this process: in the start, it ends all ranks.
        """
        is_alone = self.world.size > 1 and self.request.signal_name == "SIGTERM"
        if is_alone and self._has_begun:
            return
        if self.world.rank == 0:
            why = "without `checkpoint:`" if self._has_begun else "no epoch had begun:"
            text = f"mpi-learn: {self.request.reason}; {why} the same command starts from the beginning"
            os.write(2, f"{text}\n".encode())  # print is not reentrant
        if is_alone:
            self.world.Abort(self.request.status)
        os._exit(self.request.status)
