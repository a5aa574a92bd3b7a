"""Stochastic gradient descent with momentum and Nesterov momentum."""

from __future__ import annotations

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, fused


class StochasticGradientDescent(Rule):
    """``v ← μ v − η g``; ``w ← w + v``, or ``w ← w + μ v − η g`` with Nesterov momentum."""

    state_names = ("velocity",)

    def apply(self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, keep: Float) -> None:
        """Without momentum the velocity is not used."""
        if self.options.momentum == 0:
            _plain(weights, gradient, rate * scale, keep)
        else:
            momentum = Float(self.options.momentum)
            _with_momentum(
                weights, gradient, self.state["velocity"], rate * scale, keep, momentum, self.options.nesterov
            )


@fused
def _plain(weights, gradient, rate, keep):
    for i in range(weights.size):
        weights[i] = weights[i] * keep - rate * gradient[i]


@fused
def _with_momentum(weights, gradient, velocity, rate, keep, momentum, nesterov):
    for i in range(weights.size):
        step = rate * gradient[i]
        v = momentum * velocity[i] - step
        velocity[i] = v
        weights[i] = weights[i] * keep + (momentum * v - step if nesterov else v)
