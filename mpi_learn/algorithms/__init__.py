"""How the ranks work together: a method is a file.

Sees flat vectors, a layout and a communicator; never a model, a file or an epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi_learn.comm import Communicator

if TYPE_CHECKING:
    from mpi_learn.algorithms.algorithm import Algorithm
    from mpi_learn.optimizers.optimizer import Optimizer


def make_algorithm(options: Any, comm: Communicator, optimizer: Optimizer, n_sums: int) -> Algorithm:
    """The algorithm that a section of the configuration names.

    Args:
        options: One of the classes of `mpi_learn.algorithms.configuration`.
        comm: Of the training.
        optimizer: What makes a step of a gradient.
        n_sums: Length of the sums behind a gradient.
    """
    from mpi_learn.algorithms.allreduce import SynchronousAllReduce

    return SynchronousAllReduce(comm, optimizer, n_sums)
