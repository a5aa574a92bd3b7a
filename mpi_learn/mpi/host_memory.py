"""Memory that all processes of one job on one host hold together, once, whatever communicators they are in.

Whoever wants it first makes and fills an anonymous file and offers it on a socket of an abstract address; the others
ask there, and wait asleep until it is filled. Neither leaves anything in a file system: the system takes the address
back when the first process ends, however it does, and the memory when the last one does. Who asks one that dies before
the memory is filled takes its place.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from mpi_learn.mpi.communicators import Communicator, Pause, handed_out, on_this_host

Fill = Callable[[np.ndarray], None]
"""Fills the memory, (n_bytes,) uint8."""

N_WAITING = 4096
"""So many processes may ask while the memory is filled; the system may allow fewer, the others wait to ask."""

LONGEST_ANSWER_S = 10.0
"""An answer takes less than a millisecond; the limit is there so that whatever happens, no end waits for ever."""

_BOUND: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""The sockets of this process that may hold an address."""

PEER = "3i"
"""What the system says of the process at the other end: its id, its user's, its group's."""


def shared_by_host(comm: Communicator, name: str, n_bytes: int, fill: Fill) -> np.ndarray:
    """Memory under a name, the same for all ranks of a host. Collective over `comm`; to be called in `agreed_errors`.

    Ranks of `comm` share it with each other and with those of other communicators in this job that name the same.
    Where the system knows no such memory each rank gets and fills its own.

    Args:
        comm: Of the ranks that want it together.
        name: Of its content: the same name is the same content. The same on all ranks.
        n_bytes: Its size.
        fill: Called on one rank of the host alone, if on any; what it raises is raised on that rank.

    Returns:
        (n_bytes,) uint8, filled. On a rank that depends on one whose `fill` raised: empty.
    """
    if not hasattr(os, "memfd_create"):
        return _own(n_bytes, fill)
    if comm.size == 1:
        memory, file = _acquired(name, n_bytes, fill)
        os.close(file)
        return _as_array(memory, n_bytes)
    host = on_this_host(comm)
    try:
        return _shared(host, name, n_bytes, fill)
    finally:
        host.Free()


def _shared(host: Communicator, name: str, n_bytes: int, fill: Fill) -> np.ndarray:
    memory, file, error = None, -1, None
    if host.rank == 0:
        try:
            memory, file = _acquired(name, n_bytes, fill)
        except (Exception, SystemExit) as mine:  # noqa: BLE001 - raised again as soon as the others do not wait any more
            error = mine
    place = handed_out(host, place_of(file) if memory is not None else None)
    if host.rank != 0 and place is not None:
        memory = opened(place, n_bytes)
    host.Barrier()  # the place is there as long as the first rank holds the file open
    if file >= 0:
        os.close(file)
    if error is not None:
        raise error
    if place is None:
        return np.empty(0, np.uint8)
    return _own(n_bytes, fill) if memory is None else _as_array(memory, n_bytes)


def _acquired(name: str, n_bytes: int, fill: Fill) -> tuple[mmap.mmap, int]:
    """The memory, filled, and a descriptor of its file, which is the caller's."""
    whose = hashlib.sha256(f"{os.getuid()} {job_name()} {name}".encode()).hexdigest()
    address = f"\0mpi_learn {whose}"
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
            if (file := _asked(address)) is not None:
                return mmap.mmap(file, max(n_bytes, 1)), file
            pause()
            continue
        return _offered(own, n_bytes, fill)


def _asked(address: str) -> int | None:
    """The file that somebody offers, as soon as it is filled; None if that one ended before."""
    with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionError):
        other.connect(address)
        if not _is_own_user(other):
            raise PermissionError("another user's process offers memory under the name of this job's")
        answer, files, _, _ = socket.recv_fds(other, 1, 1)
        if answer and not files:  # it was sent, and this process may open no more files
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return files[0] if files else None
    return None


def _offered(own: socket.socket, n_bytes: int, fill: Fill) -> tuple[mmap.mmap, int]:
    try:
        own.listen(N_WAITING)
        file = _anonymous_file(n_bytes)
        memory = mmap.mmap(file, max(n_bytes, 1))
        fill(_as_array(memory, n_bytes))
    except BaseException:
        own.close()
        raise
    is_over = threading.Event()
    threading.Thread(target=_offer, args=(own, os.dup(file), is_over), name="offering memory", daemon=True).start()
    weakref.finalize(memory, _withdraw, own, is_over)
    return memory, file


def _offer(own: socket.socket, file: int, is_over: threading.Event) -> None:
    """Hands the file to whoever asks, until it is withdrawn."""
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
    """Frees the address at once, as when this process ends and waits for the others.

    Whom the thread has begun to answer it answers first: it stops where it is when Python ends, but MPI's farewell may
    last as long as the other waits for its answer.
    """
    if own.fileno() < 0:  # withdrawn before; or this is a process that user code forked
        return
    with suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)  # wakes the thread
    is_over.wait(LONGEST_ANSWER_S)
    own.close()


def _forget() -> None:
    """In a process that user code has forked, which answers nobody: lets the addresses go.

    Else they would be taken as long as it lives, and whoever asks there would wait for it.
    """
    for own in list(_BOUND):
        own.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _is_own_user(other: socket.socket) -> bool:
    found = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(PEER))
    return struct.unpack(PEER, found)[1] == os.getuid()


@dataclass(frozen=True)
class Place:
    """Where another process of this host finds an open file of this one.

    Attributes:
        path: Under ``/proc``; with process namespaces of their own, processes see different files there.
        device: Of the file.
        inode: Of the file.
    """

    path: str
    device: int
    inode: int


def place_of(file: int) -> Place:
    """The place of an open file, as long as this process holds it open."""
    status = os.fstat(file)
    return Place(f"/proc/{os.getpid()}/fd/{file}", status.st_dev, status.st_ino)


def opened(place: Place, n_bytes: int) -> mmap.mmap | None:
    """The memory at `place`; None if this process cannot open it or finds another file there."""
    try:
        with open(place.path, "r+b") as file:  # noqa: PTH123 - no path to do anything else with
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != (place.device, place.inode):
                return None
            return mmap.mmap(file.fileno(), max(n_bytes, 1))
    except OSError:
        return None


def memory_of_host(host: Communicator, n_bytes: int) -> mmap.mmap | None:
    """The same `n_bytes` in every rank of `host`; None if one of them cannot have it. Collective over `host`."""
    if host.size == 1:
        return None
    file = _anonymous_file(n_bytes) if host.rank == 0 else -1
    place = host.bcast(place_of(file) if file >= 0 else None, root=0)
    memory = None if place is None else opened(place, n_bytes)
    has_all = all(host.allgather(memory is not None))
    if file >= 0:
        os.close(file)
    return memory if has_all else None


def _anonymous_file(n_bytes: int) -> int:
    """The descriptor of a file of `n_bytes` that lives in memory alone; -1 where the system has none."""
    if not hasattr(os, "memfd_create"):
        return -1
    file = os.memfd_create("mpi_learn")
    os.ftruncate(file, max(n_bytes, 1))
    return file


def _as_array(memory: mmap.mmap, n_bytes: int) -> np.ndarray:
    return np.frombuffer(memory, np.uint8, n_bytes)


def _own(n_bytes: int, fill: Fill) -> np.ndarray:
    memory = np.empty(n_bytes, np.uint8)
    fill(memory)
    return memory


def job_name() -> str:
    """What the processes that one launcher started on this host have in common, and no others have."""
    environment = os.environ
    if "PMIX_NAMESPACE" in environment:
        return environment["PMIX_NAMESPACE"]
    if "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" in environment:
        return f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}"
    return f"of {os.getppid()}"
