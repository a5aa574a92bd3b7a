"""From a configuration to samples: read into memory, once for each host, or left in their files."""

from __future__ import annotations

import numpy as np

from mpi_learn.comm import Communicator, agreed_errors, shared_array
from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.copying import copy_samples
from mpi_learn.data.fitting import host_memory_bytes, is_streamed
from mpi_learn.data.plan import OpenSource, Plan, make_plans, n_validation, opening, readers
from mpi_learn.data.samples import Dataset, Samples
from mpi_learn.data.streamed import StreamedSamples


def load(configuration: DataConfiguration, comm: Communicator, seed: int) -> Dataset:
    """All samples that a configuration names. Collective over `comm`.

    They are held in memory that the ranks of a host share, or stay in their files (see `is_streamed`). Integer and
    half-precision features that are smaller than float32 are held as they are stored and become float32 batch by batch:
    the values stay. All others are held as float32; labels as int64 or float32, or as stored where that is smaller.

    Args:
        configuration: With absolute paths, or relative to the current folder.
        comm: Whose ranks train together.
        seed: Of what ``validation_fraction`` draws; the same on all ranks.

    Raises:
        DataError: The same on every rank: names key, file, dataset and cure.
    """
    with opening(configuration) as opened:
        training_plan, validation_plan = _planned(configuration, comm, opened)
        training = _found(training_plan, configuration, comm, opened)
        if validation_plan is not None:
            return Dataset(training, _found(validation_plan, configuration, comm, opened))
    if configuration.validation_fraction is not None:
        return Dataset(training, training, *split(len(training), configuration.validation_fraction, seed))
    return Dataset(training, training, None, np.arange(0))


def split(n: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of `n` samples to train on and which to validate on, drawn at random.

    Returns:
        Two arrays of indices in ascending order, which together hold each of 0 … n - 1 once.
    """
    order = np.random.default_rng([seed, n]).permutation(n)
    count = n_validation(n, fraction)
    return np.sort(order[count:]), np.sort(order[:count])


def _planned(configuration: DataConfiguration, comm: Communicator, opened: OpenSource) -> tuple[Plan, Plan | None]:
    plans: tuple[Plan, Plan | None] | None = None
    with agreed_errors(comm):
        if comm.rank == 0:
            plans = make_plans(configuration, opened)
    return comm.bcast(plans) if comm.size > 1 else plans


def _found(
    plan: Plan, configuration: DataConfiguration, comm: Communicator, opened: OpenSource
) -> Samples | StreamedSamples:
    """The samples of a plan, in memory or in their files. Collective over `comm`."""
    host_bytes = min(comm.allgather(host_memory_bytes()))
    if is_streamed(plan, configuration, host_bytes):  # the same on all ranks, errors included
        return StreamedSamples(plan, configuration)
    return _loaded(plan, configuration, comm, opened)


def _loaded(plan: Plan, configuration: DataConfiguration, comm: Communicator, opened: OpenSource) -> Samples:
    samples, is_mine = _allocated(plan, comm)
    with agreed_errors(comm):  # at its end all ranks have met, so that what one wrote the others may read
        if is_mine:
            _fill(samples, plan, configuration, opened)
    return samples


def _allocated(plan: Plan, comm: Communicator) -> tuple[Samples, bool]:
    """Room for the samples, and whether this rank is the one of its host that fills it. Collective over `comm`."""
    x = [shared_array(comm, (plan.n_samples, *kind.shape), kind.held_dtype) for kind in plan.x]
    y = [shared_array(comm, (plan.n_samples, *kind.shape), kind.held_dtype) for kind in plan.y]
    return Samples(tuple(array for array, _ in x), tuple(array for array, _ in y)), x[0][1]


def _fill(samples: Samples, plan: Plan, configuration: DataConfiguration, opened: OpenSource) -> None:
    first = 0
    for part in plan.parts:
        here = slice(first, first + part.n_samples)
        for reader, arrays in zip(readers(opened(part.place), configuration), (samples.x, samples.y), strict=True):
            copy_samples(reader, [array[here] for array in arrays], 0, part.n_samples)
        first += part.n_samples
