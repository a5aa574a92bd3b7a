"""Sizes, shapes and dtypes of a configuration's data, without loading them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.plan import OpenSource, Plan, make_plans, n_validation, opening, readers


@dataclass(frozen=True)
class DataSummary:
    """Sizes, shapes and dtypes of the data.

    Attributes:
        n_training: Number of training samples.
        n_validation: Number of validation samples.
        feature_shapes: The shape of one sample, for each input.
        label_shapes: The shape of one sample, for each label.
        feature_dtypes: The stored dtype of each input.
        label_dtypes: The stored dtype of each label.
        label_ranges: The smallest and largest value of each label of integers; None for other labels.
    """

    n_training: int
    n_validation: int
    feature_shapes: tuple[tuple[int, ...], ...]
    label_shapes: tuple[tuple[int, ...], ...]
    feature_dtypes: tuple[np.dtype, ...]
    label_dtypes: tuple[np.dtype, ...]
    label_ranges: tuple[tuple[int, int] | None, ...]


def inspect(configuration: DataConfiguration) -> DataSummary:
    """Reads the metadata of the files, and the labels. Needs neither MPI nor a framework.

    Raises:
        DataError: A file cannot be read or does not match the configuration.
    """
    with opening(configuration) as opened:
        training, validation = make_plans(configuration, opened)
        plans = [training] if validation is None else [training, validation]
        ranges = _label_ranges(plans, configuration, opened)
    fraction = configuration.validation_fraction
    n_held_out = n_validation(training.n_samples, fraction) if fraction is not None else 0
    return DataSummary(
        n_training=training.n_samples - n_held_out,
        n_validation=n_held_out if validation is None else validation.n_samples,
        feature_shapes=tuple(kind.shape for kind in training.x),
        label_shapes=tuple(kind.shape for kind in training.y),
        feature_dtypes=tuple(kind.dtype for kind in training.x),
        label_dtypes=tuple(kind.dtype for kind in training.y),
        label_ranges=ranges,
    )


def _label_ranges(
    plans: list[Plan], configuration: DataConfiguration, opened: OpenSource
) -> tuple[tuple[int, int] | None, ...]:
    """`DataSummary.label_ranges`. Reads the labels only if some of them are integers."""
    ranges: list[tuple[int, int] | None] = [None] * len(plans[0].y)
    whole = [number for number, kind in enumerate(plans[0].y) if kind.dtype.kind in "biu"]
    for part in (part for plan in plans for part in plan.parts if whole):
        labels = readers(opened(part.place), configuration)[1].read(0, part.n_samples)
        for number in whole:
            limits = (int(labels[number].min()), int(labels[number].max()), *(ranges[number] or ()))
            ranges[number] = min(limits), max(limits)
    return tuple(ranges)
