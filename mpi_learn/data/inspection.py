"""What a configuration's data look like, without loading them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.plan import OpenSource, Plan, make_plans, n_validation, opening, readers


@dataclass(frozen=True)
class DataSummary:
    """Sizes, shapes and dtypes of the data.

    Attributes:
        n_training: Samples to train on.
        n_validation: Samples to validate on.
        feature_shapes: The shape of one sample, for each input.
        label_shapes: The same for each label.
        feature_dtypes: As stored.
        label_dtypes: As stored.
        label_ranges: For each label the smallest and largest value if they are integers, else None.
    """

    n_training: int
    n_validation: int
    feature_shapes: tuple[tuple[int, ...], ...]
    label_shapes: tuple[tuple[int, ...], ...]
    feature_dtypes: tuple[np.dtype, ...]
    label_dtypes: tuple[np.dtype, ...]
    label_ranges: tuple[tuple[int, int] | None, ...]


def inspect(configuration: DataConfiguration) -> DataSummary:
    """Looks at what files say of themselves, and at the labels; needs neither MPI nor a framework.

    Raises:
        DataError: Names key, file, dataset and cure.
    """
    with opening(configuration) as opened:
        training, validation = make_plans(configuration, opened)
        plans = [training] if validation is None else [training, validation]
        ranges = _ranges(plans, configuration, opened)
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


def _ranges(plans: list[Plan], configuration: DataConfiguration, opened: OpenSource) -> tuple:
    is_whole = [kind.dtype.kind in "biu" for kind in plans[0].y]
    lows, highs = [[] for _ in is_whole], [[] for _ in is_whole]
    for part in (part for plan in plans for part in plan.parts if any(is_whole)):
        _, labels, _ = readers(opened(part.place), configuration)
        for array, low, high in zip(labels.read(0, part.n_samples), lows, highs, strict=True):
            low.append(array.min())
            high.append(array.max())
    return tuple(
        (int(min(low)), int(max(high))) if whole else None
        for whole, low, high in zip(is_whole, lows, highs, strict=True)
    )
