"""Errors and results of one rank, on all ranks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar, cast

from mpi_learn.errors import LONGEST_REASON, LONGEST_TEXT, MPILearnError, TrainingError, shortened
from mpi_learn.mpi import host_fault
from mpi_learn.mpi.communicators import Communicator, host_name
from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.messaging import await_all
from mpi_learn.settings.user_traceback import user_traceback

Found = TypeVar("Found")


@contextmanager
def agreed_errors(comm: Communicator, *, waits_long: bool = False, rank: int | None = None) -> Iterator[None]:
    """Raises an error of one rank on all ranks. Collective over `comm` at the end of the block.

    Inside the block, no rank may wait over `comm` for a rank that may already have raised. An `MPILearnError` is
    raised unchanged, and any other error as a `TrainingError` with the rank's traceback. If several ranks raise, the
    error of the lowest rank is raised. `KeyboardInterrupt` and `GeneratorExit` are raised at once, on this rank alone.

    Args:
        waits_long: Whether a rank may wait long for the others at the end of the block. It then sleeps meanwhile, and
            handlers of signals run; in a collective of MPI they do not.
        rank: The number of this rank for a user, if it is another one in `comm`.
    """
    mine: MPILearnError | None = None
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - every error must reach the other ranks
        mine = _as_sendable(error, comm.rank if rank is None else rank)
    if waits_long:
        await_all(comm)
    first = comm.allreduce(comm.rank if mine is not None else comm.size, op=MPI.MIN)
    if first < comm.size:
        raise comm.bcast(mine, root=first)


def each_agreed(comm: Communicator, items: Iterator[Found], rank: int) -> Iterator[Found]:
    """The same items; an error of one rank is raised on all ranks. Collective over `comm` for each item.

    Args:
        items: An iterator with as many items on each rank.
        rank: See `agreed_errors`.
    """
    while True:
        following: list[Found] = []
        with agreed_errors(comm, rank=rank):
            following = list(islice(items, 1))
        if not following:
            return
        yield following[0]


def _as_sendable(error: BaseException, rank: int) -> MPILearnError:
    """`error` itself if other ranks can raise it, otherwise as a `TrainingError`; with its host's fault."""
    if not (isinstance(error, MPILearnError) and _can_be_sent(error)):
        return as_training_error(error, rank)
    error.host_fault = host_fault.kind_of(error)
    return error


def _can_be_sent(error: BaseException) -> bool:
    """Whether other ranks can raise this error: it is one of this package's, and pickle can copy it."""
    if not isinstance(error, MPILearnError):
        return False
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a class of the user may raise anything
        return False
    return True


def result_of_rank(comm: Communicator, compute: Callable[[], Found], rank: int = 0) -> Found:
    """The result of `compute`, which is called on one rank, on every rank. Collective over `comm`.

    An error of `compute` is raised on all ranks, as by `agreed_errors`.
    """
    found: Found | None = None
    with agreed_errors(comm):
        if comm.rank == rank:
            found = compute()
    return cast(Found, comm.bcast(found, root=rank))


def as_training_error(error: BaseException, rank: int) -> TrainingError:
    """`error` as a `TrainingError` that can be sent: with rank, host and the traceback as text.

    This is where the exceptions of user code become text, which is limited here for all messages, stores and terminals.
    """
    text = shortened(user_traceback(error), LONGEST_TEXT - 2 * LONGEST_REASON)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the __str__ of a user's exception may raise anything
        message = "(its text cannot be read)"
    reason = shortened(f"{type(error).__name__}: {message}", LONGEST_REASON)
    made = TrainingError(reason, rank=rank, host=host_name(), traceback=text)
    made.host_fault = host_fault.kind_of(error)
    return made
