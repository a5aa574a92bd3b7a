"""The interface of an optimizer, and the optimizer that applies an update rule on a schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import OptimizerOptions
from mpi_learn.optimizers.rules.rule import Float, clipped, sum_of_squares
from mpi_learn.update_rule import UpdateRule


class Optimizer(ABC):
    """Changes a flat vector of weights in place.

    Attributes:
        layout: The arrays in the vector.
    """

    layout: FlatLayout

    @abstractmethod
    def update(self, weights: np.ndarray, gradient: np.ndarray, scale: float = 1.0) -> None:
        """Makes one step.

        Args:
            weights: (n,) float32, changed in place.
            gradient: (n,) float32, unchanged. Counts of the arrays may follow it; arrays with count 0 do not change.
            scale: Factor of the gradient: 1 / the weight of the batch, by which the gradient was multiplied.
        """

    @abstractmethod
    def finalize(self, weights: np.ndarray) -> None:
        """Replaces the weights, (n,) float32, by those with which a training ends; see `UpdateRule.finalize`."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The state, for a checkpoint. Resuming writes into these arrays."""


class RuleOptimizer(Optimizer):
    """Applies an update rule, with clipping, decoupled weight decay and a learning rate that may change every step.

    Args:
        options: Only those for clipping are used; the others belong to `rule`.
        rule: Makes the steps.
        rate: The learning rate of a step, counted from 0.
        weight_decay: λ of the decoupled weight decay.
    """

    def __init__(
        self, options: OptimizerOptions, rule: UpdateRule, rate: Callable[[int], float], weight_decay: float
    ) -> None:
        self.options, self.rule, self.rate, self.layout = options, rule, rate, rule.layout
        self.weight_decay = weight_decay
        self._n_steps = np.zeros(1, np.int64)  # an array, so that a checkpoint can fill it

    @property
    def n_steps(self) -> int:
        """Steps made so far."""
        return int(self._n_steps[0])

    def arrays(self) -> dict[str, np.ndarray]:
        return {"n_steps": self._n_steps, **self.rule.state}

    def update(self, weights: np.ndarray, gradient: np.ndarray, scale: float = 1.0) -> None:
        """Scales the gradient, clips its elements, then its norm, and applies the rule."""
        options = self.options
        if options.clip_value is not None:
            gradient = clipped(gradient, Float(scale), Float(options.clip_value))
            scale = 1.0
        if options.clip_norm is not None:
            norm = abs(scale) * float(np.sqrt(sum_of_squares(gradient[: self.layout.size])))
            scale *= min(1.0, options.clip_norm / max(norm, 1e-30))
        rate = self.rate(self.n_steps)
        self._n_steps += 1
        weight_factor = Float(1 - rate * self.weight_decay)
        self.rule.apply(weights, gradient, Float(rate), Float(scale), weight_factor)

    def finalize(self, weights: np.ndarray) -> None:
        self.rule.finalize(weights)
