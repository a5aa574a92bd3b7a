"""Step vectors are summed by ``torch.distributed``: NCCL between GPUs, or Gloo."""

from __future__ import annotations

import numpy as np
import torch

from mpi_learn.algorithms.reduction import Reduction
from mpi_learn.devices.device_vector import DeviceVector, Vector
from mpi_learn.devices.process_group import Backend, ProcessGroup
from mpi_learn.flat_layout import FAILED
from mpi_learn.mpi.communicators import Communicator, sum_in_place


class ProcessGroupSum(Reduction):
    """The gradient is summed by a process group, the counts and sums behind it by MPI.

    MPI is first: a rank that has failed, or is lost, is known before the others wait for it in the process group.

    Args:
        comm: Its ranks take part. Collective over `comm`.
        backend: ``nccl`` or ``gloo``.
        n: Length of the gradient, without counts.
    """

    def __init__(self, comm: Communicator, backend: Backend, n: int) -> None:
        self.n = n
        self._group = ProcessGroup(comm, backend)

    def sum(self, comm: Communicator, step: Vector) -> None:
        tail: np.ndarray = step[self.n :]
        sum_in_place(comm, tail)
        if tail[FAILED] == 0:
            self._group.sum(step.multiplied() if isinstance(step, DeviceVector) else torch.from_numpy(step[: self.n]))

    def close(self) -> None:
        self._group.close()
