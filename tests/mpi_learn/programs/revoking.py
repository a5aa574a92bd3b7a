"""Objects reduced over a communicator that can be revoked, and ranks that wait in it or in parts of it."""

from __future__ import annotations

import time

from mpi4py import MPI

from mpi_learn.mpi.communicators import split
from mpi_learn.mpi.messaging import revoke_if_protected


def compare() -> None:
    """On every rank, reductions of objects have the same results as mpi4py's own."""
    world, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
    comm = split(world, 0)
    for value, op in ((rank + 0.5, MPI.SUM), (rank, MPI.MAX), ([rank], MPI.SUM), ((-rank, rank), MPI.MINLOC)):
        assert comm.allreduce(value, op) == world.allreduce(value, op)
        assert comm.reduce(value, op, root=1) == world.reduce(value, op, root=1)
        assert comm.scan(value, op) == world.scan(value, op)
        assert comm.exscan(value, op) == world.exscan(value, op)


def is_freed(waiting) -> bool:
    """Whether ranks that wait in `waiting` are released when the last rank revokes the whole instead of joining."""
    comm = split(MPI.COMM_WORLD, 0)
    wait = waiting(comm)
    wait(0)  # on all ranks, so that the state that mpi4py keeps between calls exists
    try:
        if comm.rank == comm.size - 1:
            time.sleep(0.3)
            revoke_if_protected(comm)
        else:
            wait(1)
    except MPI.Exception:
        return True
    return comm.rank == comm.size - 1


WAITING = {
    "itself": lambda comm: comm.allreduce,
    "a duplicate": lambda comm: comm.Dup().allreduce,
    "a part of a duplicate": lambda comm: comm.Dup().Split(0).allreduce,
    "a part": lambda comm: split(comm, 0).allreduce,
    "a clone": lambda comm: comm.Clone().allreduce,
    "a grid": lambda comm: comm.Create_cart([comm.size]).allreduce,
    "a line of a grid": lambda comm: comm.Create_cart([1, comm.size]).Sub([False, True]).allreduce,
    "a part of a grid": lambda comm: comm.Create_cart([comm.size]).Split(0).allreduce,
    "a graph": lambda comm: comm.Create_dist_graph_adjacent([0], [0]).allreduce,
    "its host": lambda comm: comm.Split_type(MPI.COMM_TYPE_SHARED).allreduce,
}

compare()
freed = {name: is_freed(waiting) for name, waiting in WAITING.items()}
if all(MPI.COMM_WORLD.allgather(all(freed.values()))) and MPI.COMM_WORLD.rank == 0:
    print("all are freed", flush=True)
