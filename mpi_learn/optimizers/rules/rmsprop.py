"""RMSProp (Tieleman & Hinton 2012), centered and with momentum where asked for."""

from __future__ import annotations

import numpy as np

from mpi_learn.optimizers.optimizer import Float, Optimizer, fused


class RootMeanSquarePropagation(Optimizer):
    """``v ← ρv + (1−ρ)g²``; ``w ← w − η g/√(v + ε)``; centered: ``v`` less the squared mean gradient."""

    state_names = ("square", "mean", "velocity")

    def apply(self, weights: np.ndarray, gradient: np.ndarray, rate: Float, scale: Float, keep: Float) -> None:
        """One step; the mean and the velocity are left alone where nothing asks for them."""
        options = self.options
        if options.centered or options.momentum:
            numbers = (Float(options.rho), Float(1 - options.rho), Float(options.momentum), Float(options.epsilon))
            _full(
                weights, gradient, self.state["square"], self.state["mean"], self.state["velocity"],
                rate, scale, keep, *numbers, options.centered,
            )  # fmt: skip
        else:
            numbers = (Float(options.rho), Float(1 - options.rho), Float(options.epsilon))
            _plain(weights, gradient, self.state["square"], rate, scale, keep, *numbers)


@fused
def _plain(weights, gradient, square, rate, scale, keep, rho, rest, epsilon):
    for i in range(weights.size):
        g = scale * gradient[i]
        v = rho * square[i] + rest * g * g
        square[i] = v
        weights[i] = weights[i] * keep - rate * g / np.sqrt(v + epsilon)


@fused
def _full(weights, gradient, square, mean, velocity, rate, scale, keep, rho, rest, momentum, epsilon, centered):
    for i in range(weights.size):
        g = scale * gradient[i]
        v = rho * square[i] + rest * g * g
        square[i] = v
        if centered:
            m = rho * mean[i] + rest * g
            mean[i] = m
            v -= m * m
        step = momentum * velocity[i] + rate * g / np.sqrt(v + epsilon)
        velocity[i] = step
        weights[i] = weights[i] * keep - step
