"""Communicators, collectives and messages of arrays in place, and errors on which all ranks agree."""

from __future__ import annotations

import pickle
import socket
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar, cast

import numpy as np

from mpi_learn.errors import LONGEST_REASON, LONGEST_TEXT, MPILearnError, TrainingError, shortened
from mpi_learn.mpi import host_fault, process_end
from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.messaging import Pause, await_all, is_protected, revoke_if_protected
from mpi_learn.mpi.revocable import Revocable
from mpi_learn.settings.user_traceback import user_traceback

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
    with _creating:  # the thread of the watchdog makes no MPI call meanwhile, see `no_creation`
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


Request = MPI.Request

LONGEST_IN_STEP_S = 1e-3
"""The longest sleep of a rank that waits for a message of the same step."""

YIELD_S = 1e-3
"""A rank that waits for a message yields the processor for this time before it sleeps. A sleep takes at least 60 µs, an
exchange with a parameter server on the same host takes less. `experiments/training_speed/master.py` measures it."""


def sum_in_place(comm: Communicator, vector: np.ndarray) -> None:
    """Replaces `vector` by its sum over all ranks, in place. Collective over `comm`."""
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, vector)


def broadcast_in_place(comm: Communicator, vector: np.ndarray, root: int = 0) -> None:
    """Replaces `vector` by the vector of the rank `root`. Collective over `comm`."""
    if comm.size > 1:
        comm.Bcast(vector, root=root)


def receive_into(comm: Communicator, buffer: np.ndarray, source: int = MPI.ANY_SOURCE) -> tuple[int, int]:
    """Waits for a message without busy waiting and writes it over the first elements of `buffer`.

    Returns:
        The rank that sent it, and its tag.
    """
    status, pause = MPI.Status(), Pause(yield_s=YIELD_S)
    while (message := comm.Improbe(source=source, tag=MPI.ANY_TAG, status=status)) is None:
        pause()
    message.Recv(buffer[: n_bytes(status) // buffer.itemsize])
    return status.Get_source(), status.Get_tag()


def n_bytes(status: MPI.Status) -> int:
    """The length of a message in bytes. `MPI.Status.Get_count` of Open MPI 5 is wrong from 2 GiB on."""
    return status.Get_elements(MPI.BYTE)


def send_from(comm: Communicator, buffer: np.ndarray, to: int, tag: int) -> None:
    """Sends `buffer`, and waits without busy waiting until it may be modified."""
    wait(comm.Isend(buffer, dest=to, tag=tag))


def wait(request: MPI.Request) -> None:
    """Waits for `request` without busy waiting."""
    pause = Pause(yield_s=YIELD_S)
    while not request.Test():
        pause()


def tag_of(request: MPI.Request) -> int:
    """Waits for the message of a receive without busy waiting; returns its tag."""
    status, pause = MPI.Status(), _pause_in_step()
    while not request.Test(status):
        pause()
    return status.Get_tag()


def patient_sum_in_place(comm: Communicator, vector: np.ndarray) -> None:
    """As `sum_in_place`, without busy waiting for ranks that arrive late. Collective over `comm`."""
    request, pause = comm.Iallreduce(MPI.IN_PLACE, vector), _pause_in_step()
    while not request.Test():
        pause()


def _pause_in_step() -> Pause:
    """For messages on which the time of a step depends: those between stages wait for one another many times."""
    return Pause(LONGEST_IN_STEP_S, yield_s=YIELD_S)


def gathered(comm: Communicator, vector: np.ndarray) -> np.ndarray:
    """Every rank's `vector`, shape (ranks, n). Collective over `comm`."""
    found = np.empty((comm.size, vector.size), vector.dtype)
    comm.Allgather(np.ascontiguousarray(vector), found)
    return found


def all_to_all(comm: Communicator, vector: np.ndarray) -> np.ndarray:
    """This rank's part of every rank's `vector`, concatenated in the order of ranks. Collective over `comm`.

    Args:
        vector: Its length is a multiple of the number of ranks.
    """
    found = np.empty_like(vector)
    comm.Alltoall(vector, found)
    return found


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
    # one number, also on ranks without an error; the error itself is sent only if there is one
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
