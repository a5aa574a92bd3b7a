"""A communicator that can be given up together with all that was made of it."""

# ruff: noqa: N802 - the names are MPI's
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mpi4py import MPI


class Revocable(MPI.Intracomm):
    """A communicator whose `Revoke` frees every rank that waits in it, wherever in it.

    MPI revokes one communicator alone. But user code and algorithms wait in parts of it, too; and mpi4py reduces
    objects over a duplicate of its own, which nobody can get at. So parts are remembered here, and objects are reduced
    after having been gathered over this communicator.

    Args:
        comm: Becomes this object; the same handle.
    """

    def __new__(cls, comm: MPI.Comm | None = None) -> Revocable:
        """The same handle as `comm`."""
        return super().__new__(cls, comm)

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        self._parts: list[weakref.ref[Revocable]] = []
        self._whole: Revocable | None = None

    def Revoke(self) -> None:
        """Gives up this communicator and its parts."""
        super().Revoke()
        for reference in list(self._parts):
            part = reference()
            if part is not None and part != MPI.COMM_NULL:
                with suppress(MPI.Exception):
                    part.Revoke()

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
        mine = Revocable(part)
        mine._whole = self  # or nobody could get at the part of a part once the latter is forgotten
        self._parts = [one for one in self._parts if one() is not None and one() != MPI.COMM_NULL]
        self._parts.append(weakref.ref(mine))
        return mine
