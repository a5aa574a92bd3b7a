"""Creates communicators: of some ranks, of a host, and duplicates."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from mpi_learn.errors import MPILearnError
from mpi_learn.mpi import process_end
from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.lost_ranks import is_protected, revoke_if_protected
from mpi_learn.mpi.revocable import Revocable

Communicator = MPI.Comm

CREATION_S = 10.0
"""The longest wait of `no_creation`, in seconds. A creation takes milliseconds."""

_creating = threading.Lock()
"""Held while `from_ranks` creates a communicator."""


def split(comm: Communicator, color: int, key: int = 0) -> Communicator:
    """The communicator of all ranks with the same `color`. Collective over `comm`."""
    part = comm.Split(color, key)  # of a `Revocable` it is one, which is revoked together with `comm`
    if not isinstance(part, Revocable):
        part = Revocable(part)
    part.Set_errhandler(MPI.ERRORS_RETURN)
    comm.Barrier()  # Open MPI crashes if one rank revokes the part while another is still creating it
    return part


def subset(comm: Communicator, color: int | None) -> Communicator | None:
    """The communicator of the ranks with the same `color`; None for ranks without one. Collective over `comm`."""
    part = comm.Split(MPI.UNDEFINED if color is None else color, comm.rank)
    if color is None:
        return None
    part.Set_errhandler(MPI.ERRORS_RETURN)
    return part


def from_ranks(comm: Communicator, ranks: Sequence[int], name: str) -> Communicator:
    """Creates a communicator of some ranks of `comm`. Other ranks, dead ones included, do not take part.

    Collective over `ranks`.

    Args:
        comm: The communicator in which `ranks` are numbered.
        ranks: The members, in order.
        name: The same on all members, and never used before.
    """
    group = comm.Get_group().Incl(ranks)
    with _creating:
        forget_failed_creation()
        part = Revocable(MPI.COMM_SELF.Dup() if len(ranks) == 1 else _created(comm, group, name))
    part.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        part.Barrier()  # no member may revoke it before all members have created it, as in `split`
    except MPI.Exception:
        revoke_if_protected(part)  # a member has died: the others may wait for this rank
        raise
    return part


def forget_failed_creation() -> None:
    """Allows this process to create communicators again after a rank has died during a `Split` or `Dup`.

    Open MPI 5 creates one communicator after the other and begins with the parent of the lowest index. If a creation
    fails, the index of its parent remains recorded as the lowest, and a `Split` or `Dup` of any newer communicator
    waits forever. A creation from `COMM_SELF`, whose index is lower, clears the record.
    """
    MPI.COMM_SELF.Dup().Free()


@contextmanager
def no_creation() -> Iterator[None]:
    """Prevents `from_ranks` from creating a communicator during the block; required in a second thread that calls MPI.

    The first messages over a new communicator may arrive before it is complete. If a second thread receives one of them
    at that time, Open MPI 5 can lose it, and the ranks of the new communicator wait for it forever.

    If a creation takes longer than `CREATION_S`, the block is entered nevertheless: a member of the communicator may
    have died, and the second thread must receive the message that ends this process.
    """
    is_held = _creating.acquire(timeout=CREATION_S)
    try:
        yield
    finally:
        if is_held:
            _creating.release()


def _created(comm: Communicator, group: MPI.Group, name: str) -> Communicator:
    """A communicator of `group`, by ``MPI_Comm_create_from_group`` where the library and its launcher support it.

    Libraries before MPI 4 lack the function. Open MPI under ``srun --mpi=pmix`` reports it as unsupported.
    """
    try:
        return _create_from_group(group, name)
    except NotImplementedError:
        pass
    except MPI.Exception as error:
        if error.Get_error_class() != MPI.ERR_UNSUPPORTED_OPERATION:
            raise
    return cast(MPI.Intracomm, comm).Create_group(group, tag=zlib.crc32(name.encode()) % 30_000)


def _create_from_group(group: MPI.Group, name: str) -> Communicator:
    return MPI.Intracomm.Create_from_group(group, name)


def duplicate(comm: Communicator) -> Communicator:
    """A duplicate of `comm`, whose messages user code cannot receive. Collective over `comm`.

    With protection (`is_protected`) this is `comm` itself and not collective: creating a communicator requires all
    ranks, and one may already be dead.

    Raises:
        MPILearnError: A rank of the job is blocked, so a collective call would not return.
    """
    if process_end.skips_finalize and not is_protected():
        raise MPILearnError(
            "a rank of this job is blocked, and collective calls would wait for it: start the program again"
        )
    twin = comm if is_protected() else comm.Dup()
    twin.Set_errhandler(MPI.ERRORS_RETURN)
    return twin


@contextmanager
def private(comm: Communicator) -> Iterator[Communicator]:
    """A duplicate of `comm` for the duration of the block. Collective over `comm` at its beginning and its end.

    Its messages are separate from those of the caller, who may receive from any source with any tag. It is also freed
    after an `MPILearnError`, on which all ranks have agreed. After any other exception it is not freed: other ranks may
    still use it, and it may hold unreceived messages, which MPICH delivers to the next communicator with the same
    context.
    """
    twin = comm.Dup()
    try:
        yield twin
    except MPILearnError:
        twin.Free()
        raise
    twin.Free()


def threads_may_call() -> bool:
    """Whether several threads of this process may call MPI at the same time."""
    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


def on_this_host(comm: Communicator) -> Communicator:
    """A new communicator of the ranks of `comm` on this host; the caller frees it. Collective over `comm`."""
    return comm.Split_type(MPI.COMM_TYPE_SHARED)
