"""A process group of ``torch.distributed`` over the ranks of a communicator, which adds tensors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from mpi_learn.errors import ConfigurationError
from mpi_learn.mpi.communicators import YIELD_S, Communicator, agreed_errors, host_name, result_of_rank
from mpi_learn.mpi.messaging import Pause, RankLost

TCPStore: Any = dist.TCPStore  # type: ignore[attr-defined]  # of the extension; absent without distributed
Backend = Literal["nccl", "gloo"]
TIMEOUT = timedelta(minutes=10)
"""The longest wait for another rank. Ranks agree over MPI before each sum, and enter it at about the same time."""


class ProcessGroup:
    """Adds tensors over the ranks of a communicator. Collective over `comm`.

    It is not the default group of ``torch.distributed``, which user code may create. A group belongs to one
    communicator: the ranks that are left after a loss make another one.

    Args:
        backend: ``nccl`` for tensors on GPUs, a different GPU on each rank; ``gloo`` for tensors on the host.

    Raises:
        ConfigurationError: This PyTorch does not have the backend, or the ranks cannot connect.
    """

    def __init__(self, comm: Communicator, backend: Backend) -> None:
        with agreed_errors(comm):
            _check_available(backend)
        self._backend = backend
        hosts = comm.allgather(host_name())
        address = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
        self._store: Any = None

        def serve() -> int:
            # port 0: a free one; without waiting for the other ranks, which do not know the port yet
            self._store = TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
            return int(self._store.port)

        port = result_of_rank(comm, serve)
        with agreed_errors(comm):
            try:
                if comm.rank > 0:
                    self._store = TCPStore(address, port, is_master=False, timeout=TIMEOUT)
                self._group = _make(backend, self._store, comm.rank, comm.size)
            except (RuntimeError, ValueError) as error:  # DistNetworkError is a RuntimeError
                raise ConfigurationError(
                    f"the ranks cannot connect by {backend}: {str(error).splitlines()[0]}",
                    where="algorithm.reduction",
                    cure="write reduction: mpi, or export GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME with the name of "
                    "the network interface",
                ) from error

    def sum(self, tensor: torch.Tensor) -> None:
        """Replaces `tensor` by its sum over all ranks. Collective.

        A sum on GPUs is queued; later operations on the tensor wait for it on the GPU.

        Raises:
            RankLost: The connection to another rank has ended.
        """
        work = self._group.allreduce([tensor])
        try:
            if not tensor.is_cuda:
                pause = Pause(yield_s=YIELD_S)
                while not work.is_completed():  # `wait` would not return to Python, so that nothing could interrupt it
                    pause()
            work.wait()
        except RuntimeError as error:  # the ranks have agreed over MPI just before: one has died since then
            reason = str(error).partition("\n")[0]
            raise RankLost(f"{self._backend} has lost a rank: {reason}") from error

    def close(self) -> None:
        """Ends the connections, also those of a sum in which another rank does not take part."""
        if hasattr(self._group, "abort"):
            self._group.abort()
        self._group = self._store = None


def _check_available(backend: Backend) -> None:
    is_available = dist.is_available() and (dist.is_nccl_available() if backend == "nccl" else dist.is_gloo_available())
    if not is_available:
        raise ConfigurationError(
            f"this PyTorch was built without {backend}", where="algorithm.reduction", cure="write reduction: mpi"
        )


def _make(backend: Backend, store: Any, rank: int, size: int) -> Any:
    """The backend of a group, which `torch.distributed` would wrap in its default group."""
    if backend == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, TIMEOUT)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = TIMEOUT
    return dist.ProcessGroupNCCL(store, rank, size, options)
