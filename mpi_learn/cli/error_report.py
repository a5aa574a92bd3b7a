"""The end of a command after an error or an interruption: one message for all ranks, and the exit status."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer

from mpi_learn.errors import MPILearnError, TrainingError, UserError, shortened, without_passwords
from mpi_learn.job.exit_status import FAILED, FINISHED, INTERRUPTED, lost
from mpi_learn.job.started_by import launched_rank, restart_reason
from mpi_learn.job.stop_request import StopRequest
from mpi_learn.job.time_limits import job_end_s, margin_s

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator
    from mpi_learn.training.configuration import TrainingConfiguration


GRACE_S = 1.0
"""Time for the rank that reports lost ranks before the other ranks end the job, in seconds."""


@contextmanager
def reported(world: Communicator | None, debug: bool) -> Iterator[None]:
    """Converts an exception inside the block to one message from one rank and an exit status.

    Args:
        world: The ranks that run the block together; None before MPI starts.

    Raises:
        typer.Exit: With the error's own status after an `MPILearnError`, with `FAILED` after any other error.
    """
    try:
        yield
    except SystemExit:
        raise
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # the other ranks may wait for this one: MPI_Finalize would block
    except BaseException as error:  # noqa: BLE001 - every error ends in a message
        if world is None and isinstance(error, BrokenPipeError):  # the reader of the output has ended, as head does
            raise typer.Exit(FINISHED) from None
        if world is not None:
            _report_to(world, error, debug)
        elif launched_rank() == 0 or not isinstance(error, MPILearnError):
            _print(error, debug, is_expected=isinstance(error, OSError))  # such as a full disk
        raise typer.Exit(_status(error)) from None


def _status(error: BaseException) -> int:
    """The exit status after an error. A job with restarts is started again on a full disk: there may be space again."""
    from mpi_learn.mpi.host_fault import FULL_DISK

    if not isinstance(error, MPILearnError):
        return FAILED
    if error.host_fault == FULL_DISK and restart_reason() is not None:
        return lost(error)
    return error.exit_status


def _report_to(world: Communicator, error: BaseException, debug: bool) -> None:
    """Prints an `MPILearnError`, which all ranks raise, on rank 0: collective over `world`. Others end the job."""
    if lost := _lost_ranks(world, error):
        _abort_without(lost, world, error, debug)
    if isinstance(error, MPILearnError):
        world.Barrier()  # mpirun ends all ranks as soon as one fails: the message is printed first
        if world.rank == 0:
            _print(error, debug)
        world.Barrier()
        return
    _print(error, debug)
    if world.size > 1:
        world.Abort(FAILED)


def _abort_without(lost: set[int], world: Communicator, error: BaseException, debug: bool) -> None:
    """Reports lost ranks on the lowest living rank and ends the job; collective calls no longer work."""
    if world.rank == min(set(range(world.size)) - lost):
        names = ", ".join(map(str, sorted(lost)))
        text = f"rank {names} was lost: killed, out of memory or crashed"
        print(f"mpi-learn: {text}\n  → with `checkpoint:` the same command continues", file=sys.stderr, flush=True)
        if debug:
            _print(error, debug)
    else:
        time.sleep(GRACE_S)
    world.Abort(FAILED)


def _print(error: BaseException, debug: bool, *, is_expected: bool = False) -> None:
    if isinstance(error, MPILearnError) and not debug:
        text = str(error) if isinstance(error, UserError) else _short(error)
    elif is_expected and not debug:
        text = str(error)
    else:
        text = shortened("".join(traceback.format_exception(error)))
    with suppress(OSError):  # on a full disk, the exit status says it
        print(f"mpi-learn: {without_passwords(text)}", file=sys.stderr, flush=True)


def _lost_ranks(world: Communicator, error: BaseException) -> set[int]:
    """The ranks whose death caused `error`; empty if it has another cause."""
    from mpi_learn.mpi.messaging import acknowledge, is_communication_error

    return acknowledge(world) if is_communication_error(error) else set()


def _short(error: MPILearnError) -> str:
    """A failed training in one line, followed by the traceback of the rank that raised the error."""
    if not isinstance(error, TrainingError):
        return str(error)
    return f"training failed on rank {error.rank} ({error.host}): {error.reason}\n{error.traceback}".rstrip()


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
