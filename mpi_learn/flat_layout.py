"""A model's arrays as views of one flat float32 vector, the sums behind a gradient, and one step on such a vector.

A *step vector* is the result of one step of one rank: the gradient of the batch's mean loss times the weight of the
batch, the *counts* of the arrays that have a gradient, and the rank's *sums*: the weight of the batch, the loss times
this weight, the number of samples, the states of the metrics, which only `Model.metrics` reads and which differ between
frameworks, and two flags of the training algorithm, which are zero in the result of a model. Step vectors are added
over ranks. One collective is therefore enough, and uneven batches have the right weights.

The weight of a batch is the divisor of its mean loss: usually the number of samples. With sample weights it can be
below one, zero, or negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

ALIGNMENT_BYTES = 64
"""The alignment that frameworks and vector units need."""

WEIGHT, LOSS, N_SAMPLES = 0, 1, 2
"""Indices of the first sums."""
FLAG, FAILED = -2, -1
"""The last two sums belong to the algorithm: a flag of its own, and the number of ranks that failed."""
N_FLAGS = 2


def aligned_empty(n: int) -> np.ndarray:
    """An uninitialised vector of `n` float32 that begins at a multiple of 64 bytes."""
    memory = np.empty(4 * n + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + 4 * n].view(np.float32)


def failed_step(size: int, dtype: type[np.floating[Any]] = np.float32) -> np.ndarray:
    """The step vector of a rank that has failed, (size,): zeros, and the flag `FAILED`."""
    step = np.zeros(size, dtype)
    step[FAILED] = 1.0
    return step


@dataclass(frozen=True)
class FlatLayout:
    """The positions of a model's arrays in a flat vector.

    Attributes:
        shapes: Shapes of the arrays, in their order in the vector.
        models: The number of arrays of each model, if the vector holds several models with separate optimizers. The
            last array of each model has one element. In a gradient, it is the number of samples from which the
            gradient of this model was computed, and 0 if the step does not update this model. In the weights, it is 0.
        has_counts: Whether the last array holds one element for each array before it. In a gradient, this is the number
            of ranks whose batch used that array. In the weights, it is 0.
    """

    shapes: tuple[tuple[int, ...], ...]
    models: tuple[int, ...] = ()
    has_counts: bool = False

    @classmethod
    def of(cls, arrays: Iterable[Any]) -> FlatLayout:
        """The layout of arrays, tensors or variables with these shapes."""
        return cls(tuple(tuple(array.shape) for array in arrays))

    @cached_property
    def bounds(self) -> np.ndarray:
        """First index of each array and the end of the last one, shape (n_arrays + 1,), int64."""
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

    @property
    def size(self) -> int:
        """The length of the vector."""
        return int(self.bounds[-1])

    @property
    def without_counts(self) -> FlatLayout:
        """The same without the counts."""
        return FlatLayout(self.shapes[:-1], self.models) if self.has_counts else self

    def with_counts(self) -> FlatLayout:
        """The same with counts of these arrays at the end."""
        return FlatLayout((*self.shapes, (len(self.shapes),)), has_counts=True)

    def used(self, gradient: Any) -> np.ndarray:
        """Which of these arrays have a gradient, (n_arrays,) bool.

        Args:
            gradient: (size,), or with the counts of these arrays behind it; without them, all arrays are used. The
                gradient itself may be on a device, the counts are on the host.
        """
        counts: np.ndarray = gradient[self.size :]
        return counts != 0 if counts.size else np.ones(len(self.shapes), bool)

    def by_model(self) -> list[tuple[slice, FlatLayout]]:
        """The slice of each model's weights in the vector, and their layout; one pair if there is a single model.

        With several `models`, the element behind a slice is the number of samples of that model.
        """
        found, first = [], 0
        for n in self.models:
            last = first + n - 1
            found.append((slice(int(self.bounds[first]), int(self.bounds[last])), FlatLayout(self.shapes[first:last])))
            first += n
        return found or [(slice(0, self.without_counts.size), self.without_counts)]

    @cached_property
    def counts(self) -> np.ndarray:
        """The positions of the counts in a gradient, int64: those of its arrays, or one for each of several models."""
        if self.has_counts:
            return np.arange(self.bounds[-2], self.bounds[-1])
        return self.bounds[np.cumsum(self.models, dtype=np.int64)] - 1

    def resting(self, gradient: np.ndarray) -> np.ndarray:
        """The positions of the elements whose array, or whose model, has a count of 0 in `gradient`, int64.

        No optimizer updates these.
        """
        if self.has_counts:
            unused = np.flatnonzero(~self.without_counts.used(gradient[: self.size]))
            places = [slice(self.bounds[index], self.bounds[index + 1]) for index in unused]
        else:
            places = [place for place, _ in self.by_model() if self.models and gradient[place.stop] == 0]
        return np.concatenate([np.arange(place.start, place.stop) for place in places] or [np.zeros(0, np.int64)])

    def views(self, vector: np.ndarray) -> list[np.ndarray]:
        """The arrays as views of `vector`, which may be longer."""
        spans = zip(self.bounds[:-1], self.bounds[1:], self.shapes, strict=True)
        return [vector[start:end].reshape(shape) for start, end, shape in spans]


class UpdateRule(Protocol):
    """One step of a method on flat float32 vectors: a `Rule` of MPI Learn, or an optimizer of a framework.

    Attributes:
        layout: The arrays in the vector.
        learning_rate: The rate of the configuration, or the one with which the framework's optimizer was created; with
            a schedule of its own, that of the next step.
        has_schedule: Whether it determines the learning rate itself, so that a schedule has no effect.
        has_final_weights: Whether `finalize` changes the weights.
    """

    layout: FlatLayout
    has_schedule: bool
    has_final_weights: bool

    @property
    def learning_rate(self) -> float:
        """See the attributes of the class."""

    @property
    def state(self) -> Mapping[str, np.ndarray]:
        """The state that a checkpoint holds. Values that are written into these arrays are used in the next step."""

    def apply(
        self,
        weights: Any,
        gradient: Any,
        rate: Any,
        scale: Any,
        weight_factor: Any,
    ) -> None:
        """Changes `weights` and the state in place.

        The numbers are float32 for arrays on the host, and float for vectors on a device.

        Args:
            weights, gradient: (n,) float32; for an optimizer of a framework, the weights of its model. Arrays that
                `layout.used` excludes, and their state, do not change.
            rate: Learning rate η.
            scale: Factor of the gradient.
            weight_factor: Factor of the weights for decoupled weight decay, 1 − ηλ.
        """

    def finalize(self, weights: Any) -> None:
        """Replaces the weights by those with which a training ends, such as their moving averages.

        The state does not change. Without a step so far, neither do the weights.

        Args:
            weights: (n,) float32, changed in place.
        """
