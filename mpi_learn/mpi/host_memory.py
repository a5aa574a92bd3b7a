"""Memory that all processes of a job on one host share, across communicators.

The first process that requests the memory creates and fills an anonymous file, and offers it on a socket with an
abstract address. The others connect to this socket and sleep until the file is filled. Nothing remains in a file
system: the kernel releases the address when the first process ends, in any way, and the memory when the last one ends.
If the first process dies before the memory is filled, a waiting process takes its place.

`MPI.Win.Allocate_shared` cannot replace this. Its memory belongs to one communicator, while blocks of a search that
are formed at different times use the same samples. It is created and freed by collective calls, which are impossible
after the loss of a rank.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import socket
import struct
import threading
import uuid
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress

import numpy as np

from mpi_learn.mpi.communicators import Communicator, on_this_host
from mpi_learn.mpi.messaging import Pause, broadcast_sleeping

Fill = Callable[[np.ndarray], None]
"""Fills the memory, (n_bytes,) uint8."""

N_WAITING = 4096
"""The number of processes that can be queued while the memory is filled. The kernel may allow fewer; others block."""

LONGEST_ANSWER_S = 10.0
"""Timeout of an answer, so that the end of a process never waits forever. An answer takes less than a millisecond."""

_BOUND: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""The sockets of this process that may hold an address."""

ROW_BYTES = 4096
"""Rows of shared memory start at multiples of this, so that two rows never share a page."""

PEER = "iII"
"""The format of the credentials of the other process, ``struct ucred``: its id, user id and group id."""


def shared_by_host(comm: Communicator, name: str, n_bytes: int, fill: Fill) -> np.ndarray:
    """Memory under a name, the same for all ranks of a host. Collective over `comm`; call it inside `agreed_errors`.

    The ranks of `comm` share it with each other and with ranks of other communicators of this job that use the same
    name. On systems without anonymous files each rank fills its own memory.

    Args:
        comm: The ranks that request it together.
        name: Identifies the content; the same on all ranks.
        fill: Called on one rank of the host, unless that process dies. An error is raised on that rank.

    Returns:
        (n_bytes,) uint8, filled; empty on ranks that depend on a rank whose `fill` raised.
    """
    if not hasattr(os, "memfd_create"):
        memory = np.empty(n_bytes, np.uint8)
        fill(memory)
        return memory
    address = _address(f"{job_name()} {name}")
    if comm.size == 1:
        return _as_array(_acquired(address, n_bytes, fill), n_bytes)
    host = on_this_host(comm)
    try:
        return _shared(host, address, n_bytes, fill)
    finally:
        host.Free()


def memory_of_host(host: Communicator, n_bytes: int) -> np.ndarray | None:
    """`n_bytes` of memory shared by all ranks of `host`, uninitialised. Collective over `host`.

    Returns:
        (n_bytes,) uint8; None if a rank cannot open it, or on systems without anonymous files.
    """
    if host.size == 1 or not hasattr(os, "memfd_create"):
        return None
    address = host.bcast(_address(uuid.uuid4().hex))
    memory: mmap.mmap | None = None
    if host.rank == 0:
        with suppress(OSError):
            memory = _acquired(address, n_bytes, lambda memory: None)
    host.Barrier()  # now the others can connect to the address
    if host.rank != 0:
        with suppress(OSError):
            memory = _received(address, n_bytes)
    has_all = all(host.allgather(memory is not None))
    return _as_array(memory, n_bytes) if memory is not None and has_all else None


def rows_of_host(comm: Communicator, n: int) -> dict[int, np.ndarray]:
    """A row of `n` float32 for every rank of this host, in shared memory. Collective over `comm`.

    Rows that are never accessed use no memory.

    Returns:
        Rank in `comm` -> its row, uninitialised; empty on all ranks of a host without shared memory.
    """
    host = on_this_host(comm)
    ranks = host.allgather(comm.rank)
    n_bytes = 4 * n
    stride = -(-n_bytes // ROW_BYTES) * ROW_BYTES
    memory = memory_of_host(host, stride * len(ranks))
    host.Free()
    if memory is None:
        return {}
    rows = memory.reshape(len(ranks), stride)[:, :n_bytes]
    return {rank: row.view(np.float32) for rank, row in zip(ranks, rows, strict=True)}


def _shared(host: Communicator, address: str, n_bytes: int, fill: Fill) -> np.ndarray:
    """`shared_by_host` for the ranks of one host. Collective over `host`."""
    memory, error = _memory_or_error(address, n_bytes, fill) if host.rank == 0 else (None, None)
    is_filled = broadcast_sleeping(host, memory is not None)
    if host.rank != 0 and is_filled:
        memory, error = _memory_or_error(address, n_bytes, fill)
    host.Barrier()  # the first rank holds the memory until all ranks have it
    if error is not None:
        raise error
    return np.empty(0, np.uint8) if memory is None else _as_array(memory, n_bytes)


def _memory_or_error(address: str, n_bytes: int, fill: Fill) -> tuple[mmap.mmap | None, BaseException | None]:
    """The memory, or the error that is raised when the other ranks no longer wait."""
    try:
        return _acquired(address, n_bytes, fill), None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised by `_shared`
        return None, error


def _address(name: str) -> str:
    """The address of a socket for memory of this user."""
    return f"\0mpi_learn {hashlib.sha256(f'{os.getuid()} {name}'.encode()).hexdigest()}"


def _acquired(address: str, n_bytes: int, fill: Fill) -> mmap.mmap:
    """The filled memory, which this process or another one offers at `address`."""
    pause = Pause()
    while True:
        own = socket.socket(socket.AF_UNIX)
        _BOUND.add(own)
        try:
            own.bind(address)
        except OSError as error:
            own.close()
            if error.errno != errno.EADDRINUSE:
                raise
            if (memory := _received(address, n_bytes)) is not None:
                return memory
            pause()
            continue
        return _filled(own, n_bytes, fill)


def _received(address: str, n_bytes: int) -> mmap.mmap | None:
    """The memory that another process offers, once it is filled; None if that process ended first."""
    with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionError):
        other.connect(address)
        if not _is_own_user(other):
            raise PermissionError("another user's process offers memory under the name of this job's")
        answer, files, _, _ = socket.recv_fds(other, 1, 1)
        if answer and not files:  # the file was sent, but this process cannot open more files
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if files:
            with os.fdopen(files[0], "rb") as file:
                return mmap.mmap(file.fileno(), max(n_bytes, 1))
    return None


def _filled(own: socket.socket, n_bytes: int, fill: Fill) -> mmap.mmap:
    with ExitStack() as undo:
        undo.callback(own.close)
        own.listen(N_WAITING)
        file = os.memfd_create("mpi_learn")
        undo.callback(os.close, file)
        os.ftruncate(file, max(n_bytes, 1))
        memory = mmap.mmap(file, max(n_bytes, 1))
        fill(_as_array(memory, n_bytes))
        is_over = threading.Event()
        try:
            threading.Thread(target=_offer, args=(own, file, is_over), name="offering memory", daemon=True).start()
        except RuntimeError as error:  # the limit of threads or processes
            raise OSError(errno.EAGAIN, str(error)) from error
        undo.pop_all()
    weakref.finalize(memory, _withdraw, own, is_over)
    return memory


def _offer(own: socket.socket, file: int, is_over: threading.Event) -> None:
    """Sends the file to every process that connects, until it is withdrawn."""
    while True:
        try:
            other, _ = own.accept()
        except OSError:
            break
        with other, suppress(OSError):
            if _is_own_user(other):
                socket.send_fds(other, [b"!"], [file])
    own.close()
    os.close(file)
    is_over.set()


def _withdraw(own: socket.socket, is_over: threading.Event) -> None:
    """Releases the address at once, for example when this process ends and waits for the others.

    Waits for the thread to complete an answer. Python would stop the thread before ``MPI_Finalize``, which would then
    wait forever for a process that waits for this answer.
    """
    if own.fileno() < 0:  # already withdrawn, or this process was forked by user code
        return
    with suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)  # wakes the thread
    is_over.wait(LONGEST_ANSWER_S)
    own.close()


def _forget() -> None:
    """Closes the sockets in a process that user code has forked.

    The forked process answers no requests. With open sockets it would keep the addresses occupied, and processes that
    connect would wait for it.
    """
    for own in list(_BOUND):
        own.close()


os.register_at_fork(after_in_child=_forget)


def _is_own_user(other: socket.socket) -> bool:
    found = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(PEER))
    _, user, _ = struct.unpack(PEER, found)
    return bool(user == os.getuid())


def _as_array(memory: mmap.mmap, n_bytes: int) -> np.ndarray:
    return np.frombuffer(memory, np.uint8, n_bytes)


def job_name() -> str:
    """A name that is common to the processes that one launcher started on this host.

    Without PMIx and Slurm, other programs that the same process has started have the same name.
    """
    environment = os.environ
    if "PMIX_NAMESPACE" in environment:
        return environment["PMIX_NAMESPACE"]
    if "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" in environment:
        return f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}"
    return f"of {os.getppid()}"
