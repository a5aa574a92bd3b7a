"""Samples in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpi_learn.data.files.array_kind import Role, dtype_for_model
from mpi_learn.data.files.data_plan import DataPlan

Selection = np.ndarray | slice
CopyRows = Callable[[np.ndarray, Selection, np.dtype], np.ndarray]
"""A function of (array, indices, dtype) for a copy of some rows; see `copied_rows`."""


def copied_rows(array: np.ndarray, indices: Selection, dtype: np.dtype) -> np.ndarray:
    """A new array with the rows at `indices`, integers of shape (n,) or a slice, converted to `dtype`."""
    if isinstance(indices, slice):
        return np.array(array[indices], dtype)
    return array.take(indices, axis=0).astype(dtype, copy=False)


@dataclass(frozen=True)
class SampleFormat:
    """Names and dtypes of samples for the model.

    Attributes:
        x_names, y_names: Names of inputs and labels; empty if they are matched by position.
        weight_names: Names of the outputs to which the weights belong; empty for weights of all outputs.
        x_dtypes, y_dtypes: dtypes of inputs and labels; empty applies the rules of `dtype_for_model`.
    """

    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    x_dtypes: tuple[np.dtype, ...] = ()
    y_dtypes: tuple[np.dtype, ...] = ()
    weight_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: DataPlan) -> SampleFormat:
        """The format of a plan's samples. Arrays have names only if all of them have one."""
        x_names, y_names = ([kind.key for kind in kinds] for kinds in (plan.x, plan.y))
        return cls(
            tuple(x_names) if all(x_names) else (),
            tuple(y_names) if all(y_names) else (),
            tuple(kind.model_dtype for kind in plan.x),
            tuple(kind.model_dtype for kind in plan.y),
            tuple(kind.key for kind in plan.weights if kind.key),
        )


@dataclass(frozen=True)
class Samples:
    """Arrays of the same length: sample i is the i-th entry of each.

    They are held in the stored dtype if it is smaller (uint8 images stay uint8); `take` converts them for the model.

    Attributes:
        x: One array per input of the model, of shape (n_samples, …).
        y: One array per label; none for a model that learns from the inputs alone.
        weights: One array of sample weights, or none.
        format: Names and dtypes.
        copy_rows: How `take` copies.
    """

    x: tuple[np.ndarray, ...]
    y: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...] = ()
    format: SampleFormat = SampleFormat()
    copy_rows: CopyRows = copied_rows

    def __len__(self) -> int:
        return len(self.x[0]) if self.x else 0

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All arrays: inputs, labels, weights."""
        return (*self.x, *self.y, *self.weights)

    def labels(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All labels, in one or several pieces."""
        yield self.y

    def sample_weights(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All sample weights, in one or several pieces."""
        yield self.weights

    def part(self, indices: slice) -> Samples:
        """Views of consecutive samples, as they are held."""
        x, y, weights = (tuple(array[indices] for array in group) for group in (self.x, self.y, self.weights))
        return replace(self, x=x, y=y, weights=weights)

    def take(self, indices: Selection) -> Samples:
        """A copy of some samples, converted for the model.

        Args:
            indices: Integers of shape (n,), or a slice.

        Returns:
            New arrays of length n.
        """
        return Samples(
            self._taken(self.x, indices, self.format.x_dtypes, "features"),
            self._taken(self.y, indices, self.format.y_dtypes, "labels"),
            self._taken(self.weights, indices, (), "weights"),
            self.format,
        )

    def _taken(
        self, arrays: tuple[np.ndarray, ...], indices: Selection, dtypes: tuple[np.dtype, ...], role: Role
    ) -> tuple[np.ndarray, ...]:
        wanted: Any = dtypes or [dtype_for_model(array.dtype, role) for array in arrays]
        copy_rows = self.copy_rows
        return tuple(copy_rows(array, indices, dtype) for array, dtype in zip(arrays, wanted, strict=True))


def samples_of(plan: DataPlan, arrays: Sequence[np.ndarray]) -> Samples:
    """`arrays`, in the order of `DataPlan.kinds`, as samples."""
    n_x, n_labelled = len(plan.x), len(plan.x) + len(plan.y)
    x, y, weights = arrays[:n_x], arrays[n_x:n_labelled], arrays[n_labelled:]
    return Samples(tuple(x), tuple(y), tuple(weights), SampleFormat.of(plan))
