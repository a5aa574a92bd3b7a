"""A communicator that is revoked together with every communicator derived from it."""

# ruff: noqa: N802 - the names are MPI's
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from mpi_learn.mpi.library import MPI

Kind = TypeVar("Kind", bound=MPI.Comm)

DERIVING = (
    "Clone",
    "Dup",
    "Split",
    "Split_type",
    "Create",
    "Create_group",
    "Create_cart",
    "Create_graph",
    "Create_dist_graph",
    "Create_dist_graph_adjacent",
)
"""Those methods of `MPI.Intracomm` that return a derived communicator, and that `Revocable` overrides."""


class Revocable(MPI.Intracomm):
    """A communicator whose `Revoke` frees every rank that waits in it or in a communicator derived from it.

    MPI revokes a single communicator, but user code and algorithms also wait in derived ones. mpi4py reduces Python
    objects over an internal duplicate, which cannot be revoked from outside. This class therefore keeps references to
    derived communicators, and reduces objects after gathering them over this communicator.

    mpi4py gathers objects on all ranks with ``MPI_Allgatherv``. Open MPI 5 ignores an error inside of it: if a rank has
    died, the other ranks may receive arbitrary bytes. Here, a gather followed by a broadcast reports the death.

    Args:
        comm: This object takes over its handle.
    """

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        self._children: list[weakref.ref[MPI.Comm]] = []
        self._parent: Revocable | None = None

    def Revoke(self) -> None:
        """Revokes this communicator and those derived from it."""
        super().Revoke()
        for reference in list(self._children):
            child = reference()
            if child is not None and child != MPI.COMM_NULL:
                with suppress(MPI.Exception):
                    child.Revoke()

    def allgather(self, sendobj: Any) -> list[Any]:
        """`MPI.Comm.allgather`. A rank that cannot receive the objects raises, or waits until `Revoke` frees it."""
        return cast(list[Any], self.bcast(self.gather(sendobj, root=0), root=0))

    def allreduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM) -> Any:
        """`MPI.Comm.allreduce`, in the order of the ranks, over this communicator itself."""
        return functools.reduce(op, self.allgather(sendobj))

    def reduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM, root: int = 0) -> Any:
        """`MPI.Comm.reduce`, in the order of the ranks, over this communicator itself."""
        found = self.gather(sendobj, root=root)
        return None if found is None else functools.reduce(op, found)

    def scan(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM) -> Any:
        """`MPI.Intracomm.scan` over this communicator itself."""
        return functools.reduce(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Callable[[Any, Any], Any] = MPI.SUM) -> Any:
        """`MPI.Intracomm.exscan` over this communicator itself."""
        before = self.allgather(sendobj)[: self.rank]
        return functools.reduce(op, before) if before else None

    def _registered(self, derived: Kind) -> Kind:
        """`derived` as a `Revocable`, to which this object keeps a weak reference."""
        if derived == MPI.COMM_NULL:
            return derived
        mine = next(mine for theirs, mine in KINDS.items() if isinstance(derived, theirs))(derived)
        mine._parent = self  # kept alive: a `Revoke` of its own parent finds `mine` only through it
        self._children = [reference for reference in self._children if reference() not in (None, MPI.COMM_NULL)]
        self._children.append(weakref.ref(mine))
        return cast(Kind, mine)


def _revocable(derive: Callable[..., MPI.Comm]) -> Callable[..., MPI.Comm]:
    @functools.wraps(derive)
    def method(self: Revocable, *arguments: Any, **options: Any) -> MPI.Comm:
        return self._registered(derive(self, *arguments, **options))

    return method


for _name in DERIVING:
    if hasattr(MPI.Intracomm, _name):  # `mpi_learn.mpi.one_process` has only some of them
        setattr(Revocable, _name, _revocable(getattr(MPI.Intracomm, _name)))


class Grid(Revocable, MPI.Cartcomm):
    """A derived communicator with a Cartesian topology."""

    def Sub(self, *arguments: Any, **options: Any) -> MPI.Cartcomm:
        """A revocable `MPI.Cartcomm.Sub`."""
        return self._registered(super().Sub(*arguments, **options))


class Graph(Revocable, MPI.Graphcomm):
    """A derived communicator with a graph topology."""


class DistributedGraph(Revocable, MPI.Distgraphcomm):
    """A derived communicator with a distributed graph topology."""


KINDS: dict[type[MPI.Comm], type[Revocable]] = {
    MPI.Cartcomm: Grid,
    MPI.Graphcomm: Graph,
    MPI.Distgraphcomm: DistributedGraph,
    MPI.Intracomm: Revocable,
}
"""mpi4py's class -> the revocable class."""
