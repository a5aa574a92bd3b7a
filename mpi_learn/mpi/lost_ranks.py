"""Lost ranks: how MPI reports them, which ranks are lost, and how the ranks that wait for them are freed."""

from __future__ import annotations

import os
import re

from mpi_learn.mpi.library import MPI

ERROR_CLASSES = tuple(getattr(MPI, name, -1) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED"))
"""MPI's error classes for a failed process and for a communicator that was revoked because of one."""

FIRST_RELIABLE = (5, 0, 11)
"""The first version of Open MPI in which the tests of lost ranks pass. With 5.0.8 to 5.0.10, searches hang."""


class RankLost(Exception):
    """A rank of a communicator has died, or the communicator was revoked because a rank died."""


FAILURES = (MPI.Exception, RankLost)
"""The exceptions of communication over a broken communicator."""


def acknowledge(comm: MPI.Comm) -> set[int]:
    """Acknowledges the deaths in `comm`, so that receives from any source work again.

    Returns:
        All ranks of `comm` that are known to have died.
    """
    if not is_protected():
        return set()
    comm.Ack_failed()  # first: a rank that dies in between is reported twice rather than never
    failed = comm.Get_failed()
    return set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), comm.group)) if failed.size else set()


def is_protected() -> bool:
    """Whether the job survives lost ranks: Open MPI 5 started with ``--with-ft ulfm``."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112 - Open MPI spells it so


def unreliable_version(library: str) -> str:
    """The version of Open MPI, if a program may hang in it after the loss of a rank; otherwise empty.

    Args:
        library: The name of the MPI library, as ``MPI_Get_library_version`` returns it.
    """
    found = re.match(r"Open MPI v(\d+)\.(\d+)\.(\d+)", library)
    return ".".join(found.groups()) if found and tuple(map(int, found.groups())) < FIRST_RELIABLE else ""


def is_communication_error(error: BaseException) -> bool:
    """Whether `error` reports a broken communicator."""
    return isinstance(error, FAILURES)


def is_consequence(error: BaseException) -> bool:
    """Whether `error` of this rank is only the consequence of the death or the exception of another rank.

    Such errors have one of `ERROR_CLASSES`, or were raised while user code handled one. Every other error of MPI, such
    as a message that is too long for its receiver, is a cause.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, RankLost):
            return True
        if isinstance(found, MPI.Exception) and found.Get_error_class() in ERROR_CLASSES:
            return True
        waiting += [found.__cause__, found.__context__]
    return False


def revoke_if_protected(comm: MPI.Comm) -> None:
    """Revokes `comm` and communicators derived from it, so that calls of ranks that wait for this one raise.

    Has no effect without protection (`is_protected`).
    """
    if comm.size > 1 and is_protected():
        comm.Revoke()
