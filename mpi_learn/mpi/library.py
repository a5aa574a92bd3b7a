"""``MPI`` for the modules of this package: mpi4py's, or a substitute for one process.

A command that checks a configuration needs neither an MPI library nor a launcher. It calls `use_one_process` first.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI as MPI

_IS_WITHOUT = False


def use_one_process() -> None:
    """Makes this process use `mpi_learn.mpi.one_process`, unless it has already imported mpi4py."""
    global _IS_WITHOUT
    _IS_WITHOUT = sys.modules.get("mpi4py.MPI") is None


def __getattr__(name: str) -> Any:
    """Imports ``MPI`` on first use."""
    if name != "MPI":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    if _IS_WITHOUT:
        from mpi_learn.mpi import one_process

        return one_process
    from mpi4py import MPI

    return MPI
