"""Several models in one vector, each with its own optimizer."""

from __future__ import annotations

import numpy as np

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.optimizer import Optimizer


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
