"""A communicator that can be given up together with all that was made of it."""

# ruff: noqa: N802 - the names are MPI's
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mpi_learn.mpi.library import MPI


class Remembering:
    """Remembers the parts that are made of a communicator; mixed into each of mpi4py's classes.

    Args:
        comm: Becomes this object; the same handle.
    """

    def __new__(cls, comm: MPI.Comm | None = None) -> Remembering:
        """The same handle as `comm`."""
        return super().__new__(cls, comm)

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        self._parts: list[weakref.ref[Remembering]] = []
        self._whole: Remembering | None = None

    def Revoke(self) -> None:
        """Gives up this communicator and its parts."""
        super().Revoke()
        for reference in list(self._parts):
            part = reference()
            if part is not None and part != MPI.COMM_NULL:
                with suppress(MPI.Exception):
                    part.Revoke()

    def Clone(self) -> MPI.Intracomm:
        """See `MPI.Comm.Clone`."""
        return self._remembered(super().Clone())

    def Dup(self, *arguments: Any, **options: Any) -> MPI.Intracomm:
        """See `MPI.Comm.Dup`."""
        return self._remembered(super().Dup(*arguments, **options))

    def Split(self, *arguments: Any, **options: Any) -> MPI.Intracomm:
        """See `MPI.Comm.Split`."""
        return self._remembered(super().Split(*arguments, **options))

    def Split_type(self, *arguments: Any, **options: Any) -> MPI.Intracomm:
        """See `MPI.Comm.Split_type`."""
        return self._remembered(super().Split_type(*arguments, **options))

    def Create(self, *arguments: Any, **options: Any) -> MPI.Intracomm:
        """See `MPI.Intracomm.Create`."""
        return self._remembered(super().Create(*arguments, **options))

    def Create_group(self, *arguments: Any, **options: Any) -> MPI.Intracomm:
        """See `MPI.Intracomm.Create_group`."""
        return self._remembered(super().Create_group(*arguments, **options))

    def Create_cart(self, *arguments: Any, **options: Any) -> MPI.Cartcomm:
        """See `MPI.Intracomm.Create_cart`."""
        return self._remembered(super().Create_cart(*arguments, **options))

    def Create_graph(self, *arguments: Any, **options: Any) -> MPI.Graphcomm:
        """See `MPI.Intracomm.Create_graph`."""
        return self._remembered(super().Create_graph(*arguments, **options))

    def Create_dist_graph(self, *arguments: Any, **options: Any) -> MPI.Distgraphcomm:
        """See `MPI.Intracomm.Create_dist_graph`."""
        return self._remembered(super().Create_dist_graph(*arguments, **options))

    def Create_dist_graph_adjacent(self, *arguments: Any, **options: Any) -> MPI.Distgraphcomm:
        """See `MPI.Intracomm.Create_dist_graph_adjacent`."""
        return self._remembered(super().Create_dist_graph_adjacent(*arguments, **options))

    def allreduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM) -> Any:
        """See `MPI.Comm.allreduce`; in the order of the ranks."""
        return functools.reduce(op, self.allgather(sendobj))

    def reduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM, root: int = 0) -> Any:
        """See `MPI.Comm.reduce`; in the order of the ranks."""
        found = self.gather(sendobj, root=root)
        return None if found is None else functools.reduce(op, found)

    def scan(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM) -> Any:
        """See `MPI.Intracomm.scan`."""
        return functools.reduce(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM) -> Any:
        """See `MPI.Intracomm.exscan`."""
        before = self.allgather(sendobj)[: self.rank]
        return functools.reduce(op, before) if before else None

    def _remembered(self, part: MPI.Comm) -> MPI.Intracomm:
        if part == MPI.COMM_NULL:
            return part
        mine = next(mine for theirs, mine in KINDS.items() if isinstance(part, theirs))(part)
        mine._whole = self  # or nobody could get at the part of a part once the latter is forgotten
        self._parts = [one for one in self._parts if one() is not None and one() != MPI.COMM_NULL]
        self._parts.append(weakref.ref(mine))
        return mine


class Revocable(Remembering, MPI.Intracomm):
    """A communicator whose `Revoke` frees every rank that waits in it, wherever in it.

    MPI revokes one communicator alone. But user code and algorithms wait in parts of it, too; and mpi4py reduces
    objects over a duplicate of its own, which nobody can get at. So parts are remembered here, and objects are reduced
    after having been gathered over this communicator.
    """


class Grid(Remembering, MPI.Cartcomm):
    """A part whose ranks stand in a grid."""

    def Sub(self, *arguments: Any, **options: Any) -> MPI.Cartcomm:
        """See `MPI.Cartcomm.Sub`."""
        return self._remembered(super().Sub(*arguments, **options))


class Graph(Remembering, MPI.Graphcomm):
    """A part whose ranks are the nodes of a graph."""


class DistributedGraph(Remembering, MPI.Distgraphcomm):
    """A part whose ranks know their own neighbours in a graph."""


KINDS = {
    MPI.Cartcomm: Grid,
    MPI.Graphcomm: Graph,
    MPI.Distgraphcomm: DistributedGraph,
    MPI.Intracomm: Revocable,
}
"""mpi4py's class -> the one that remembers."""
