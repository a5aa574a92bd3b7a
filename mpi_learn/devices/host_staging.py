"""Sums a vector on a device over ranks by MPI, through memory of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_learn.devices.device_vector import DeviceVector
from mpi_learn.mpi.communicators import Communicator, sum_in_place

if TYPE_CHECKING:  # PyTorch is optional
    import torch


class HostStaging:
    """Copies a `DeviceVector` to the host, adds it there in one Allreduce, and copies the sum back.

    The memory is page-locked if the device is a GPU, because copies from and to other memory take several times as
    long. It is allocated with the first vector.
    """

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None

    def sum(self, comm: Communicator, vector: DeviceVector) -> None:
        """Replaces `vector` by its sum over all ranks. Collective over `comm`."""
        if comm.size == 1:
            return
        import torch

        n = vector.front.numel()
        if self._memory is None or self._memory.numel() != vector.size:
            self._memory = torch.empty(vector.size, pin_memory=vector.front.is_cuda)
        memory = self._memory
        memory[:n].copy_(vector.multiplied())  # waits for the device
        whole = memory.numpy()
        whole[n:] = vector.tail
        sum_in_place(comm, whole)
        vector.tail[:] = whole[n:]
        vector.front.copy_(memory[:n], non_blocking=True)
