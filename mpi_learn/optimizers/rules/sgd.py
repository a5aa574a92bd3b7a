"""Stochastic gradient descent with momentum and Nesterov momentum."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, fused


class StochasticGradientDescent(Rule):
    """``v ← μ v − η g``; ``w ← w + v``, or ``w ← w + μ v − η g`` with Nesterov momentum."""

    def state_names(self) -> tuple[str, ...]:
        return ("velocity",) if self.options.momentum else ()

    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        if self.options.momentum == 0:
            _plain(weights, gradient, rate * scale, weight_factor)
        else:
            momentum = Float(self.options.momentum)
            _with_momentum(
                weights, gradient, self.state["velocity"], rate * scale, weight_factor, momentum, self.options.nesterov
            )

    def apply_to_tensors(
        self, weights: Any, gradient: Any, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        factor = rate * scale
        if not isinstance(factor, float):  # a tensor cannot be `alpha`
            gradient, factor = gradient.mul_(factor), 1.0
        if weight_factor != 1:
            weights.mul_(weight_factor)
        if self.options.momentum == 0:
            weights.sub_(gradient, alpha=factor)
            return
        velocity = self.state["velocity"].mul_(self.options.momentum).sub_(gradient, alpha=factor)
        if self.options.nesterov:
            weights.add_(velocity, alpha=self.options.momentum).sub_(gradient, alpha=factor)
        else:
            weights.add_(velocity)


@fused
def _plain(weights, gradient, rate, weight_factor):
    for i in range(weights.size):
        weights[i] = weights[i] * weight_factor - rate * gradient[i]


@fused
def _with_momentum(weights, gradient, velocity, rate, weight_factor, momentum, nesterov):
    for i in range(weights.size):
        step = rate * gradient[i]
        v = momentum * velocity[i] - step
        velocity[i] = v
        weights[i] = weights[i] * weight_factor + (momentum * v - step if nesterov else v)
