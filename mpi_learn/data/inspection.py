"""Sizes, shapes and dtypes of a configuration's data, without loading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    is_whole = [kind.dtype.kind in "biu" for kind in plans[0].y]
    if not any(is_whole):
        return (None,) * len(is_whole)
    ranges = [
        [(int(array.min()), int(array.max())) if whole else None for whole, array in zip(is_whole, labels, strict=True)]
        for labels in _labels(plans, configuration, opened)
    ]
    return tuple(_united(of_label) for of_label in zip(*ranges, strict=True))


def _labels(
    plans: list[Plan], configuration: DataConfiguration, opened: OpenSource
) -> Iterator[tuple[np.ndarray, ...]]:
    """The labels of each file."""
    for part in (part for plan in plans for part in plan.parts):
        _, labels, _ = readers(opened(part.place), configuration)
        yield labels.read(0, part.n_samples)


def _united(ranges: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The range of all files; None if the label has none."""
    known = [one for one in ranges if one is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None
