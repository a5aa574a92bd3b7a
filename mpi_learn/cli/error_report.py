"""Reports an error once for all ranks, and ends the program with the documented exit status."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from mpi_learn.errors import MPILearnError, TrainingError, UserError, shortened, without_passwords
from mpi_learn.job.exit_status import FAILED, INTERRUPTED
from mpi_learn.job.launchers import launched_rank

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator

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
        if world is not None:
            _report_to(world, error, debug)
        elif launched_rank() == 0 or not isinstance(error, MPILearnError):
            _print(error, debug)
        raise typer.Exit(error.exit_status if isinstance(error, MPILearnError) else FAILED) from None


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


def _print(error: BaseException, debug: bool) -> None:
    if isinstance(error, MPILearnError) and not debug:
        text = str(error) if isinstance(error, UserError) else _short(error)
    else:
        text = shortened("".join(traceback.format_exception(error)))
    print(f"mpi-learn: {without_passwords(text)}", file=sys.stderr, flush=True)


def _lost_ranks(world: Communicator, error: BaseException) -> set[int]:
    """The ranks whose death caused `error`; empty if it has another cause."""
    from mpi_learn.mpi.lost_ranks import acknowledge, is_communication_error

    return acknowledge(world) if is_communication_error(error) else set()


def _short(error: MPILearnError) -> str:
    """A failed training in one line, followed by the traceback of the rank that raised the error."""
    if not isinstance(error, TrainingError):
        return str(error)
    return f"training failed on rank {error.rank} ({error.host}): {error.reason}\n{error.traceback}".rstrip()
