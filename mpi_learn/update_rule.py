"""The interface of an update rule: one step of an optimizer on flat vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from mpi_learn.flat_layout import FlatLayout


class UpdateRule(Protocol):
    """One step of a method on flat float32 vectors: a `Rule` of MPI Learn, or an optimizer of a framework.

    Attributes:
        layout: The arrays in the vector.
        learning_rate: The rate of the configuration, or the one with which the framework's optimizer was created.
        has_schedule: Whether it determines the learning rate itself, so that a schedule has no effect.
        has_final_weights: Whether `finalize` changes the weights.
    """

    layout: FlatLayout
    learning_rate: float
    has_schedule: bool
    has_final_weights: bool

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
