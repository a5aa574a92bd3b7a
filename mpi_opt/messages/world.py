"""The communicator of all ranks of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_learn.job.launchers import check_world, is_launched

if TYPE_CHECKING:
    from mpi_learn.mpi.communicators import Communicator


def world_communicator() -> Communicator | None:
    """The world communicator; None in a process that no MPI launcher has started, or if it is alone.

    Raises:
        UserError: A launcher has started several processes, but MPI does not connect them.
    """
    if not is_launched():
        return None
    from mpi_learn.mpi.library import MPI

    check_world(MPI.COMM_WORLD.size, MPI.Get_library_version())
    return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None
