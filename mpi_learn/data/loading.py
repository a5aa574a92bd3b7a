"""Reads samples into memory, once for each host."""

from __future__ import annotations

import math

import numpy as np

from mpi_learn.comm import Communicator, agreed_errors, shared_array
from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.plan import OpenSource, Plan, make_plans, n_validation, opening, readers
from mpi_learn.data.reader import ArrayKind, Reader
from mpi_learn.data.samples import Dataset, Samples

CHUNK_BYTES = 64 * 2**20
"""So much is read at once, so that reading takes little memory beside what is held."""


def load(configuration: DataConfiguration, comm: Communicator, seed: int) -> Dataset:
    """All samples that a configuration names, in memory that the ranks of a host share. Collective over `comm`.

    Integer and half-precision features that are smaller than float32 are held as they are stored and become float32
    batch by batch: the values stay. All others are held as float32; labels as int64 or float32, or as stored where
    that is smaller.

    Args:
        configuration: With absolute paths, or relative to the current folder.
        comm: Whose ranks train together.
        seed: Of what ``validation_fraction`` draws; the same on all ranks.

    Raises:
        DataError: The same on every rank: names key, file, dataset and cure.
    """
    with opening(configuration) as opened:
        training_plan, validation_plan = _planned(configuration, comm, opened)
        training = _loaded(training_plan, configuration, comm, opened)
        if validation_plan is not None:
            return Dataset(training, _loaded(validation_plan, configuration, comm, opened))
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
            _copy(reader, [array[here] for array in arrays], part.n_samples)
        first += part.n_samples


def _copy(reader: Reader, targets: list[np.ndarray], n: int) -> None:
    """Reads all `n` samples of one file into `targets`, in pieces."""
    sample_bytes = sum(kind.dtype.itemsize * math.prod(kind.shape) for kind in reader.kinds)
    at_once = max(1, CHUNK_BYTES // max(1, sample_bytes))
    for start in range(0, n if targets else 0, at_once):
        stop = min(start + at_once, n)
        for target, array, kind in zip(targets, reader.read(start, stop), reader.kinds, strict=True):
            if array.shape != (stop - start, *kind.shape):
                raise reader.error(
                    f"samples {start} to {stop - 1} have the shape {array.shape}, not {(stop - start, *kind.shape)}",
                    kind.name,
                    cure="every sample must have the same shape, and the file must not change while it is read",
                )
            with np.errstate(over="ignore", invalid="ignore"):
                target[start:stop] = array
            _check_finite(reader, kind, array, array, start)
            _check_finite(reader, kind, array, target[start:stop], start)
            _check_dtype(reader, kind, array, start)


def _check_dtype(reader: Reader, kind: ArrayKind, array: np.ndarray, start: int) -> None:
    if not np.can_cast(array.dtype, kind.dtype, "same_kind"):
        raise reader.error(
            f"the samples from {start} on are {array.dtype}, those before {kind.dtype}",
            kind.name,
            cure="make them all the same",
        )


def _check_finite(reader: Reader, kind: ArrayKind, stored: np.ndarray, held: np.ndarray, start: int) -> None:
    if held.dtype.kind != "f" or np.isfinite(held).all():
        return
    bad = np.argwhere(~np.isfinite(held))[0]
    place = f"sample {start + bad[0]}" + (f", element {tuple(map(int, bad[1:]))}" if len(bad) > 1 else "")
    raise reader.error(
        f"{place} is {stored[tuple(bad)]}, which is no number that float32 holds",
        kind.name,
        cure="take such samples out, or replace the value with {names: …, function: file.py:function}",
    )
