"""Optimizers around others: one for each part of a model, and the scale of the loss in float16."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_learn.devices.device_vector import DeviceVector, Vector
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.optimizer import Optimizer

FIRST, LARGEST, FACTOR, INTERVAL = 2.0**16, 2.0**24, 2.0, 2000
"""The first scale, as in `torch.amp.GradScaler`, and the largest; the factor after `INTERVAL` finite gradients."""


class LossScaling(Optimizer):
    """Leaves out steps whose gradient is not finite, and adapts the scale (Micikevicius et al. 2018, section 3.2).

    All ranks decide alike without a message of their own: each has the sum of the gradients of all ranks, and this sum
    is not finite on any rank if the gradient of one is not.

    Args:
        optimizer: Makes the other steps, with gradients that the model has divided by the scale again.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer, self.layout = optimizer, optimizer.layout
        self._state = np.array([FIRST, 0.0])  # an array, so that a checkpoint can fill it

    def scale(self) -> float:
        """The factor of the loss in the next step."""
        return float(self._state[0])

    def update(self, weights: Vector, gradient: Vector, scale: float = 1.0) -> None:
        now, n_since = self._state
        # at the scale 1, such a gradient is not of the scale: NaN reaches the weights, as in float32
        if now > 1.0 and not _is_finite(gradient, self.layout.size):
            self._state[:] = max(now / FACTOR, 1.0), 0
            return
        self._optimizer.update(weights, gradient, scale)
        is_due = n_since + 1 == INTERVAL
        self._state[:] = (min(now * FACTOR, LARGEST), 0) if is_due else (now, n_since + 1)

    def finalize(self, weights: Any) -> None:
        self._optimizer.finalize(weights)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"loss_scale": self._state, **self._optimizer.arrays()}


def _is_finite(gradient: Vector, n: int) -> bool:
    """Whether all elements are finite; for a gradient on a device, the host waits for it."""
    if isinstance(gradient, DeviceVector):
        return bool(gradient.front.isfinite().all())
    return bool(np.isfinite(gradient[:n]).all())


class SeparateOptimizers(Optimizer):
    """Updates each model by the mean gradient over the samples of its part of the vector.

    A model whose part has no samples does not change, nor does its optimizer's state: with a zero gradient, momentum
    would still move the weights and Adam would count a step.

    Args:
        layout: A layout of several models (see `FlatLayout.models`).
    """

    def __init__(self, layout: FlatLayout, optimizers: list[Optimizer]) -> None:
        self.layout, self.optimizers = layout, optimizers
        self._places = [place for place, _ in layout.by_model()]

    def update(self, weights: np.ndarray, gradient: np.ndarray, scale: float = 1.0) -> None:
        """Makes one step of each model. The numbers of samples in `gradient` determine the scale; `scale` is unused."""
        for place, optimizer in zip(self._places, self.optimizers, strict=True):
            n_samples = float(gradient[place.stop])
            if n_samples > 0:
                optimizer.update(weights[place], gradient[place], 1.0 / n_samples)

    def finalize(self, weights: np.ndarray) -> None:
        for place, optimizer in zip(self._places, self.optimizers, strict=True):
            optimizer.finalize(weights[place])

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of all models' optimizers, as ``0.mean``."""
        return {
            f"{index}.{name}": array
            for index, optimizer in enumerate(self.optimizers)
            for name, array in optimizer.arrays().items()
        }
