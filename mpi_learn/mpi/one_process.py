"""A substitute for ``mpi4py.MPI`` without MPI: the communicator of a single process.

The names are mpi4py's. Calls that need another rank are not defined and raise `AttributeError`.
"""

# ruff: noqa: N802 - the names are MPI's
from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

ANY_SOURCE, ANY_TAG, UNDEFINED, COMM_TYPE_SHARED = -1, -1, -3, 0
ERRORS_RETURN = IN_PLACE = BYTE = COMM_NULL = None

SUM: Callable[[Any, Any], Any] = operator.add
MIN, MAX = builtins.min, builtins.max
LAND: Callable[[Any, Any], Any] = operator.and_


class Exception(builtins.Exception):
    """Never raised."""


class Request:
    """Never instantiated: there are no messages."""


class Status:
    """Never filled: there are no messages."""


class Comm:
    """A communicator of one rank."""

    rank, size = 0, 1

    def __new__(cls, comm: Comm | None = None) -> Comm:
        """A communicator of this process."""
        return super().__new__(cls)

    def Set_errhandler(self, handler: object) -> None:
        """Does nothing: no call fails."""

    def Revoke(self) -> None:
        """Does nothing: no other rank waits."""

    def Free(self) -> None:
        """Does nothing."""

    def Barrier(self) -> None:
        """Returns at once."""

    def Dup(self) -> Comm:
        """Itself."""
        return self

    def Clone(self) -> Comm:
        """Itself."""
        return self

    def Split(self, color: int = 0, key: int = 0) -> Comm | None:
        """Itself, or None for `UNDEFINED`."""
        return None if color == UNDEFINED else self

    def Split_type(self, split_type: int, key: int = 0) -> Comm:
        """Itself."""
        return self

    def bcast(self, value: Any, root: int = 0) -> Any:
        """`value`."""
        return value

    def allreduce(self, value: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """`value`."""
        return value

    def gather(self, value: Any, root: int = 0) -> list[Any]:
        """`value` alone."""
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        """`value` alone."""
        return [value]


class Intracomm(Comm):
    """An intracommunicator of one rank."""

    @classmethod
    def Create_from_group(cls, group: object, name: str) -> Comm:
        """A communicator of this process."""
        return cls()


class Cartcomm(Intracomm):
    """A Cartesian communicator of one rank."""


class Graphcomm(Intracomm):
    """A graph communicator of one rank."""


class Distgraphcomm(Intracomm):
    """A distributed graph communicator of one rank."""


COMM_SELF = COMM_WORLD = Intracomm()
