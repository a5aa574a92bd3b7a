"""Notices lost ranks, on rank 0: finds out from MPI which ranks of the search have died, and reports each of them once.

The members of a block notice a loss as well, because communication in their block fails: they report the block as
`Broken` (`mpi_opt.worker.worker`). docs/architecture.md describes the reaction of the coordinator.
"""

from __future__ import annotations

from mpi_learn.mpi import lost_ranks
from mpi_learn.mpi.communicators import Communicator
from mpi_opt.messages.messages import Lost


class LostRanks:
    """The ranks of a search that MPI has reported as dead."""

    def __init__(self, world: Communicator) -> None:
        self._world = world
        self._reported: set[int] = set()

    def __contains__(self, rank: int) -> bool:
        """Whether the death of `rank` has been reported."""
        return rank in self._reported

    def all(self) -> set[int]:
        """All ranks that are known to have died. Receives from any source then work again."""
        return lost_ranks.acknowledge(self._world)

    def report(self) -> Lost | None:
        """The ranks that have died since the last report; None if there are none."""
        new = self.all() - self._reported
        self._reported |= new
        return Lost(frozenset(new)) if new else None
