"""Stochastic gradient descent with momentum and Nesterov momentum."""

from __future__ import annotations

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, fused


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
