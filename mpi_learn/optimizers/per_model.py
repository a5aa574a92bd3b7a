"""Several models in one vector, each moved by an optimizer of its own when it has a gradient."""

from __future__ import annotations

import numpy as np

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import Float, Optimizer


class SeparateOptimizers(Optimizer):
    """Moves each model by the mean gradient over the samples that its part of the gradient speaks of.

    A model without samples rests: neither its weights nor its optimizer's state, step count included, change. A zero
    gradient would not do, for with it a momentum goes on and Adam counts a step.

    Args:
        layout: With `FlatLayout.models`.
        optimizers: One for each.
    """

    def __init__(self, layout: FlatLayout, optimizers: list[Optimizer]) -> None:
        super().__init__(Sgd(), layout, lambda step: 0.0)
        self.optimizers = optimizers
        self._places = [place for place, _ in layout.places()]
        for number, optimizer in enumerate(optimizers):
            self.state |= {f"{number}.{name}": array for name, array in optimizer.arrays().items()}

    def apply(self, weights: np.ndarray, gradient: np.ndarray, rate: Float, scale: Float, keep: Float) -> None:
        """One step of each model that has a gradient; the vector itself says by what to divide."""
        for place, optimizer in zip(self._places, self.optimizers, strict=True):
            n_samples = float(gradient[place.stop])
            if n_samples > 0:
                optimizer.update(weights[place], gradient[place], 1.0 / n_samples)
