"""Synchronous data parallelism: in every step, all workers apply the mean gradient over all their samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.configuration import AllReduce
from mpi_learn.algorithms.encoded_sum import EncodedSum
from mpi_learn.algorithms.reduction import ExactFirstSteps, ExactSum, LowRank, Reduction, TopFraction
from mpi_learn.compression.encodings import ENCODINGS
from mpi_learn.devices.device_vector import DeviceVector, Vector
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FAILED, N_SAMPLES, WEIGHT, FlatLayout, failed_step
from mpi_learn.models.network import ModelState
from mpi_learn.mpi.communicators import Communicator, host_name, sum_in_place
from mpi_learn.optimizers.optimizer import Optimizer


class SynchronousAllReduce(Algorithm):
    """In each step, a `Reduction` adds the step vectors of all ranks: gradients, sums and the flag that a rank failed.

    The gradient in a step vector is that of the mean loss of a batch, times the weight of the batch. The sum of these
    gradients, divided by the total weight, which is one of the sums, is exactly the mean gradient over the global
    batch, also for uneven shares. If the total weight is zero, there is no mean, and the step changes nothing.

    Args:
        setup: Communicator, weights and sizes.
        optimizer: Makes the same update on every rank.
        reduction: How step vectors are summed.
        accumulate: Number of steps whose gradients a rank sums before they are exchanged.
    """

    def __init__(self, setup: AlgorithmSetup, optimizer: Optimizer, reduction: Reduction, accumulate: int) -> None:
        self.comm, self.n, self.n_sums = setup.comm, setup.n, setup.n_sums
        self.weights: Vector = setup.weights if setup.on_device is None else setup.on_device
        self.optimizer, self.reduction, self.accumulate = optimizer, reduction, accumulate
        self.statistics = setup.batch_statistics if self.comm.size > 1 else None
        self.n_exchanges = math.ceil(setup.n_steps / accumulate)
        self._step_dtype, self._n_left = setup.step_dtype, 0

    @classmethod
    def build(cls, options: AllReduce, setup: AlgorithmSetup) -> SynchronousAllReduce:
        """The algorithm as configured."""
        optimizer = setup.make_optimizer(None, math.ceil(setup.n_steps / options.accumulate))
        return cls(setup, optimizer, choose_reduction(options, setup), options.accumulate)

    def run(self, steps: Iterable[Any]) -> None:
        self._n_left = self.n_exchanges  # the other ranks wait in an exchange only while some are left
        try:
            for step in steps if self.accumulate == 1 else self._accumulated(steps):
                if not self._exchange(step):
                    return
        except BaseException:
            if self._n_left:
                self._report_failure()
            raise

    def synchronize(self) -> None:
        """All ranks have the same weights already."""

    def finalize(self) -> None:
        self.optimizer.finalize(self.weights)

    def state(self) -> dict[str, np.ndarray]:
        return {**self.optimizer.arrays(), **self.reduction.state()}

    def rank_state(self) -> dict[str, np.ndarray]:
        return self.reduction.rank_state()

    def close(self) -> None:
        self.reduction.close()

    def _exchange(self, step: Vector) -> bool:
        """Sums a step vector over all ranks and updates the weights; False if a rank failed. Collective."""
        sums: np.ndarray = step[self.n :]
        # before the sum, which replaces the number of samples of this rank
        weighted = weighted_statistics(self.statistics, float(sums[N_SAMPLES])) if self.statistics is not None else None
        self.reduction.sum(self.comm, step)
        self._n_left -= 1
        if sums[FAILED] > 0:  # the same on all ranks; the failed one takes part in no other collective of this step
            return False
        if weighted is not None:
            sum_in_place(self.comm, weighted)
        if sums[WEIGHT] != 0:  # otherwise no rank has samples, or their weights cancel: there is no mean
            gradient = step[: self.n]
            if isinstance(gradient, np.ndarray):  # of shards, it is float64
                gradient = gradient.astype(np.float32, copy=False)
            self.optimizer.update(self.weights, gradient, 1.0 / float(sums[WEIGHT]))
        if self.statistics is not None and weighted is not None and weighted[-1] > 0:
            self.statistics.set_floats(mean_statistics(weighted))
        return True

    def _accumulated(self, steps: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Sums of `accumulate` step vectors; the last one of an epoch may have fewer terms."""
        total, n_terms = np.zeros(self.n + self.n_sums, np.float32), 0
        for step in steps:
            total += step
            n_terms += 1
            if n_terms == self.accumulate:
                yield total
                total[:] = 0
                n_terms = 0
        if n_terms:
            yield total

    def _report_failure(self) -> None:
        """Takes part in the exchange in which the other ranks wait, with zeros and the flag that this rank failed."""
        self.reduction.sum(self.comm, failed_step(self.n + self.n_sums, self._step_dtype))


def weighted_statistics(statistics: ModelState, n_samples: float) -> np.ndarray:
    """This rank's batch statistics times its number of samples, and that number, (k + 1,) float64: to be summed.

    Without samples all elements are zero, also if a statistic is infinite, as in the mask of an attention layer.
    """
    vector = np.append(statistics.floats().astype(np.float64), 1.0)
    return vector * n_samples if n_samples else np.zeros_like(vector)


def mean_statistics(weighted: np.ndarray) -> np.ndarray:
    """The mean over all samples, (k,) float32, of a sum of `weighted_statistics` over ranks."""
    mean: np.ndarray = (weighted[:-1] / weighted[-1]).astype(np.float32)
    return mean


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
