"""Run under mpirun on several nodes: all ranks but the first form a block, as the workers of a search do, and end."""

from mpi4py import MPI

from mpi_opt.messages.messages import Join
from mpi_opt.messages.mpi_link import MPIWorkerLink

world = MPI.COMM_WORLD
members = tuple(range(1, world.size))
if world.rank > 0:
    block = MPIWorkerLink(world).form_block(Join(0, members), lambda: None)
    assert block.allreduce(1) == len(members)
    block.Free()
world.Barrier()  # as in a search, rank 0 lives until the block has ended
