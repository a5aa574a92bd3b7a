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


class Exception(builtins.Exception):
    """Never raised."""


class Request:
    """Never instantiated: there are no messages."""


class Status:
    """Never filled: there are no messages."""


class Comm:
    """A communicator of one rank: every method returns at once, with this rank's value or this communicator."""

    rank, size = 0, 1

    def __new__(cls, comm: Comm | None = None) -> Comm:
        return super().__new__(cls)

    def Set_errhandler(self, handler: object) -> None: ...

    def Revoke(self) -> None: ...

    def Free(self) -> None: ...

    def Barrier(self) -> None: ...

    def Dup(self) -> Comm:
        return self

    def Clone(self) -> Comm:
        return self

    def Split(self, color: int = 0, key: int = 0) -> Comm | None:
        return None if color == UNDEFINED else self

    def Split_type(self, split_type: int) -> Comm:
        return self

    def bcast(self, value: Any, root: int = 0) -> Any:
        return value

    def allreduce(self, value: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        return value

    def gather(self, value: Any, root: int = 0) -> list[Any]:
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    @classmethod
    def Create_from_group(cls, group: object, name: str) -> Comm:
        return cls()


Intracomm = Cartcomm = Graphcomm = Distgraphcomm = Comm
COMM_SELF = COMM_WORLD = Comm()
