"""Which library sums the step vectors of a training."""

from __future__ import annotations

from mpi_learn.algorithms.algorithm import AlgorithmSetup
from mpi_learn.algorithms.compression.encoded_sum import EncodedSum
from mpi_learn.algorithms.compression.encodings import ENCODINGS
from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.algorithms.reduction import ExactFirstSteps, ExactSum, LowRank, Reduction, TopFraction
from mpi_learn.devices.device_vector import DeviceVector
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.mpi.communicators import Communicator, host_name


def choose_reduction(options: AllReduce, setup: AlgorithmSetup) -> Reduction:
    """The reduction that ``reduction:`` and ``compression:`` name. Collective over ``setup.comm``.

    Raises:
        ConfigurationError: It is not available for these vectors.
    """
    backend = options.reduction
    if setup.comm.size > 1 and backend == "auto":
        # NCCL refuses a communicator in which two ranks use the same GPU
        backend = "nccl" if has_gpu_of_its_own(setup.comm, setup.on_device) else "mpi"
    if setup.comm.size == 1 or backend == "auto" or backend == "mpi":
        return make_reduction(options, setup.weights_layout, setup.comm.size)
    if backend == "nccl" and (setup.on_device is None or not setup.on_device.front.is_cuda):
        raise ConfigurationError(
            "nccl sums gradients on GPUs, and the gradients of this training are in the memory of the host",
            where="algorithm.reduction",
            cure="write reduction: auto; docs/models.md lists the trainings whose gradients stay on the GPU",
        )
    try:
        from mpi_learn.algorithms.process_group_sum import ProcessGroupSum
    except ImportError as error:
        raise ConfigurationError(
            f"{backend} needs PyTorch: {error}", where="algorithm.reduction", cure="pip install torch"
        ) from error
    return ProcessGroupSum(setup.comm, backend, setup.weights_layout.without_counts.size)


def make_reduction(options: AllReduce, layout: FlatLayout, size: int) -> Reduction:
    """The reduction that ``compression:`` names, for gradients of this layout on `size` ranks."""
    if options.compression == "none":
        return ExactSum()
    compressed = _compressed(options, layout, size)
    return ExactFirstSteps(options.exact_steps, compressed) if options.exact_steps else compressed


def _compressed(options: AllReduce, layout: FlatLayout, size: int) -> Reduction:
    if options.compression == "top-k":
        return TopFraction(options.fraction, layout)
    if options.compression == "power-sgd":
        return LowRank(options.matrix_rank, layout)
    return EncodedSum(ENCODINGS[options.compression], layout, size)


def has_gpu_of_its_own(comm: Communicator, weights: DeviceVector | None) -> bool:
    """Whether the weights are on a GPU on every rank, and no two ranks share one. Collective over `comm`."""
    gpus = comm.allgather(_gpu_of(weights))
    return None not in gpus and len(set(gpus)) == len(gpus)


def _gpu_of(weights: DeviceVector | None) -> tuple[str, str] | None:
    """Host and identifier of the GPU that holds the weights, if NCCL can use it."""
    if weights is None or not weights.front.is_cuda:
        return None
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    return host_name(), str(torch.cuda.get_device_properties(weights.front.device).uuid)
