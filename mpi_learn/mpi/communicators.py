"""Communicators, waiting without busy waiting, and errors that ranks agree on.

A rank that waits in ``recv`` or ``wait`` occupies a whole core. Ranks that may wait long for one another therefore
wait with `receive`, which probes and sleeps for increasing times. Blocking collectives are used inside a training
step, where all ranks arrive together.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from mpi_learn.errors import MPILearnError, TrainingError
from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.revocable import Revocable

Communicator = MPI.Comm

AT_END = 32_101
"""The tag of a rank's exit status: large, because the messages of user code have small tags."""

FIRST_PAUSE_S = 10e-6
LONGEST_PAUSE_S = 0.1
PATIENCE = 0.05
"""A waiting rank sleeps for this fraction of the time waited so far, so its answer is at most 5 % late."""


LOSSES = tuple(getattr(MPI, name, -1) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED"))
"""MPI's error classes for a failed process and for a communicator that was revoked because of one."""


class RankLost(Exception):
    """A rank of a communicator has died, or the communicator was revoked because a rank died."""


FAILURES = (MPI.Exception, RankLost)
"""The exceptions of communication over a broken communicator."""


class Pause:
    """Sleeps between two probes, for a fixed fraction of the time waited so far, between 10 µs and `longest_s`.

    Args:
        longest_s: The longest single sleep, in seconds. An answer may be late by this time.
        yield_s: Time in seconds during which it yields the processor without sleeping.
    """

    def __init__(self, longest_s: float = LONGEST_PAUSE_S, yield_s: float = 0.0) -> None:
        self.longest_s, self.yield_s = longest_s, yield_s
        self.reset()

    def reset(self) -> None:
        """Restarts with short sleeps, after something happened."""
        self._since = time.monotonic()

    @property
    def waited_s(self) -> float:
        """Seconds since something last happened."""
        return time.monotonic() - self._since

    def __call__(self) -> None:
        """Sleeps once."""
        waited_s = self.waited_s
        if waited_s < self.yield_s:
            os.sched_yield()
            return
        time.sleep(min(max(FIRST_PAUSE_S, PATIENCE * waited_s), self.longest_s))


def receive(
    comm: Communicator,
    source: int = MPI.ANY_SOURCE,
    tag: int = MPI.ANY_TAG,
    *,
    longest_s: float = LONGEST_PAUSE_S,
    meanwhile: Callable[[], None] | None = None,
) -> tuple[Any, int, int]:
    """Waits for a message without busy waiting.

    Args:
        meanwhile: Called between two probes, for callers that monitor something else; it may raise.

    Returns:
        The object, the rank that sent it, its tag.
    """
    pause = Pause(longest_s)
    while (found := poll(comm, source, tag)) is None:
        if meanwhile is not None:
            meanwhile()
        pause()
    return found


def poll(comm: Communicator, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> tuple[Any, int, int] | None:
    """A message that has arrived, as (object, source, tag), or None. Never waits.

    Raises:
        RankLost: `source` has died; with any source, a rank has died and its death is not yet acknowledged.
    """
    status = MPI.Status()
    try:
        message = comm.improbe(source=source, tag=tag, status=status)
        if message is None:
            return None
        return message.recv(), status.Get_source(), status.Get_tag()
    except MPI.Exception as error:
        if error.Get_error_class() in LOSSES:
            raise RankLost(str(error)) from None
        raise


def send_if_alive(comm: Communicator, message: Any, to: int, tag: int) -> None:
    """Sends to a rank; has no effect if the rank has died."""
    with suppress(MPI.Exception):
        comm.send(message, dest=to, tag=tag)


def send_to_all(comm: Communicator, message: Any, ranks: Sequence[int], tag: int) -> None:
    """Sends to several ranks at once; ranks that have died are ignored."""
    requests = []
    for rank in ranks:
        with suppress(MPI.Exception):
            requests.append(comm.isend(message, dest=rank, tag=tag))
    for request in requests:
        with suppress(MPI.Exception):
            request.wait()


def deliver(comm: Communicator, message: Any, ranks: Sequence[int], tag: int, limit_s: float) -> None:
    """Sends to several ranks; returns when each has received the message or has died, or after `limit_s`."""
    requests = {}
    for rank in ranks:
        with suppress(MPI.Exception):
            requests[rank] = comm.issend(message, dest=rank, tag=tag)
    pause = Pause()
    while requests and pause.waited_s < limit_s:
        for rank, request in list(requests.items()):
            is_done = True
            with suppress(MPI.Exception):
                is_done = request.test()[0]
            if is_done:
                del requests[rank]
        for rank in lost_ranks(comm):
            requests.pop(rank, None)
        pause()


def await_deaths(comm: Communicator, ranks: Iterable[int], limit_s: float) -> None:
    """Returns when all of `ranks` are known to have died, or after `limit_s`."""
    pause, waiting = Pause(), set(ranks)
    while waiting and pause.waited_s < limit_s:
        pause()
        waiting -= lost_ranks(comm)


def handed_out(comm: Communicator, message: Any) -> Any:
    """Rank 0's `message`, on every rank. The other ranks sleep until rank 0 sends it. Collective over `comm`."""
    if comm.rank != 0:
        return receive(comm, source=0)[0]
    send_to_all(comm, message, range(1, comm.size), tag=0)
    return message


def split(comm: Communicator, color: int, key: int = 0) -> Communicator:
    """The communicator of all ranks with the same `color`. Collective over `comm`."""
    part = Revocable(comm.Split(color, key))
    part.Set_errhandler(MPI.ERRORS_RETURN)
    comm.Barrier()  # Open MPI crashes if one rank revokes the part while another is still creating it
    return part


def group_of(comm: Communicator, ranks: Sequence[int], name: str) -> Communicator:
    """Creates a communicator of some ranks of `comm`. Other ranks, dead ones included, do not take part.

    Collective over `ranks`.

    Args:
        comm: The communicator in which `ranks` are numbered.
        ranks: The members, in order.
        name: The same on all members, and never used before.
    """
    group = comm.Get_group().Incl(ranks)
    part = Revocable(MPI.COMM_SELF.Dup() if len(ranks) == 1 else _created(comm, group, name))
    part.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        part.Barrier()  # no member may revoke it before all members have created it, as in `split`
    except MPI.Exception:
        release(part)  # a member has died: the others may wait for this rank
        raise
    return part


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


def lost_ranks(comm: Communicator) -> set[int]:
    """Acknowledges the deaths in `comm`, so that receives from any source work again.

    Returns:
        All ranks of `comm` that are known to have died.
    """
    if not is_protected():
        return set()
    comm.Ack_failed()  # first: a rank that dies in between is reported twice rather than never
    failed = comm.Get_failed()
    return set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), comm.group)) if failed.size else set()


def skip_finalize(world: Communicator, reachable: Sequence[int] = ()) -> None:
    """Makes this process end without ``MPI_Finalize``, which would wait forever for lost or blocked ranks.

    Without protection (`is_protected`), ``mpirun`` counts such a process as failed. Rank 0 therefore waits until the
    other ranks have reached their end, and ends the job with ``MPI_Abort``, which returns its status.

    Args:
        world: All ranks.
        reachable: On rank 0: the ranks that call this function as well.
    """
    global _skips_finalize
    _skips_finalize = True
    atexit.register(_leave, world, reachable)


_skips_finalize = False
"""Whether a rank of this job is lost or blocked, so that no call may require all ranks."""


def _leave(world: Communicator, reachable: Sequence[int]) -> None:
    flush()
    status = exit_status if exit_status is not None else int(hasattr(sys, "last_type"))
    if is_protected() or world.size == 1:
        os._exit(status)
    if world.rank > 0:
        world.send(status, dest=0, tag=AT_END)
        while True:  # until rank 0 ends the job
            time.sleep(1.0)
    for rank in reachable:
        status = max(status, receive(world, source=rank, tag=AT_END)[0])
    print("some ranks wait for one that has failed: MPI_Abort ends them", file=sys.stderr, flush=True)
    world.Abort(status)


def flush() -> None:
    """Flushes standard output and error. Errors are ignored: user code may have closed the streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


exit_status: int | None = None
"""The exit status of a process that skips ``MPI_Finalize``; None: 1 after an uncaught exception, else 0."""


def duplicate(comm: Communicator) -> Communicator:
    """A duplicate of `comm`, whose messages user code cannot receive. Collective over `comm`.

    With protection (`is_protected`) this is `comm` itself and not collective: creating a communicator requires all
    ranks, and one may already be dead.

    Raises:
        MPILearnError: A rank of the job is blocked, so a collective call would not return.
    """
    if _skips_finalize and not is_protected():
        raise MPILearnError("a rank still hangs in a trial of the search before this one: start the program again")
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


@contextmanager
def agreed_errors(comm: Communicator) -> Iterator[None]:
    """Raises an error of one rank on all ranks. Collective over `comm` at the end of the block.

    Communication over `comm` inside the block must not need a rank that may already have raised. An `MPILearnError` is
    raised unchanged; any other error becomes a `TrainingError` with the rank's traceback. If several ranks raise, the
    error of the lowest rank is raised.
    """
    mine: BaseException | None = None
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - every error must reach the other ranks
        mine = error if isinstance(error, MPILearnError) else described(error, comm.rank)
    first = comm.allreduce(comm.rank if mine is not None else comm.size, op=MPI.MIN)
    if first < comm.size:
        raise comm.bcast(mine, root=first)


def described(error: BaseException, rank: int) -> TrainingError:
    """`error` as a `TrainingError` that can be sent: with rank, host and the traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - the __str__ of a user's exception may raise anything
        said = "(its text cannot be read)"
    return TrainingError(f"{type(error).__name__}: {said}", rank=rank, host=host_name(), traceback=text)


def is_protected() -> bool:
    """Whether the job survives lost ranks: Open MPI 5 started with ``--with-ft ulfm``."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112 - Open MPI spells it so


def is_communication_error(error: BaseException) -> bool:
    """Whether `error` reports a broken communicator."""
    return isinstance(error, FAILURES)


def release(comm: Communicator) -> None:
    """Revokes `comm` and communicators derived from it, so that calls of ranks that wait for this one raise.

    Has no effect without protection (`is_protected`).
    """
    if comm.size > 1 and is_protected():
        comm.Revoke()


def on_this_host(comm: Communicator) -> Communicator:
    """A new communicator of the ranks of `comm` on this host; the caller frees it. Collective over `comm`."""
    return comm.Split_type(MPI.COMM_TYPE_SHARED)
