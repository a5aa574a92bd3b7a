"""Faults of a host or a server, which no training has caused: a full disk, too little memory, no connection.

A training that ends with one of them may succeed later. `MPILearnError.host_fault` keeps the kind of fault while an
error passes from rank to rank, since the exception that caused it cannot be sent.
"""

from __future__ import annotations

import errno
import os
import re
import socket

from mpi_learn.errors import MPILearnError, SavingError

FULL_DISK = "a full disk"
DISK = "a file system that cannot be used"
MEMORY = "too little memory"
PROCESSES = "a limit of processes, threads or open files"
CONNECTION = "a server that cannot be reached"

_BY_NUMBER = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), FULL_DISK),
    **dict.fromkeys((errno.EIO, errno.EROFS, errno.ESTALE, errno.ENODEV, errno.ENXIO), DISK),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN), PROCESSES),
    **dict.fromkeys(
        (errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN, errno.ETIMEDOUT),
        CONNECTION,
    ),
    errno.ENOMEM: MEMORY,
}

_BY_CLASS = {
    **dict.fromkeys(("MemoryError", "OutOfMemoryError", "ResourceExhaustedError"), MEMORY),
    **dict.fromkeys(("ConnectionError", "gaierror", "TimeoutError"), CONNECTION),
}
"""The name of a class of exceptions, of Python or of a framework -> the kind of fault."""

_UNALLOCATED = re.compile("DefaultCPUAllocator: ")
"""The words of PyTorch for too little memory of the host, a `RuntimeError`."""

_FULL = re.compile("|".join(re.escape(os.strerror(number)) for number in (errno.ENOSPC, errno.EDQUOT)))
"""The system's words for a full disk, which HDF5 and others put into errors without a number."""


def kind_of(error: BaseException) -> str:
    """The kind of fault that has caused `error`, or that was raised while code handled one; empty if there is none."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    found = ""
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kind = _own_kind(one)
        found = kind if kind == FULL_DISK else found or kind
        waiting += [one.__context__, one.__cause__]
    return found or (DISK if isinstance(error, SavingError) else "")  # frameworks hide the cause


def kind_of_text(error: str) -> str:
    """`FULL_DISK` if the text of an error has the system's words for it, otherwise empty."""
    return FULL_DISK if _FULL.search(error) else ""


def _own_kind(error: BaseException) -> str:
    if isinstance(error, MPILearnError) and error.host_fault:
        return error.host_fault
    kinds = []
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror):  # which has other numbers
        kinds.append(_BY_NUMBER.get(error.errno or 0, ""))
    kinds += [_BY_CLASS.get(base.__name__, "") for base in type(error).__mro__]
    if known := next(filter(None, kinds), ""):
        return known
    try:
        if isinstance(error, MPILearnError):
            return ""
        return MEMORY if _UNALLOCATED.search(str(error)) else kind_of_text(str(error))
    except Exception:  # noqa: BLE001 - the __str__ of a user's exception may raise anything
        return ""
