"""Adadelta (Zeiler 2012, algorithm 1)."""

from __future__ import annotations

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, fused


class AdaptiveDelta(Rule):
    """``v ← ρv + (1−ρ)g²``; ``d = g √(s + ε)/√(v + ε)``; ``s ← ρs + (1−ρ)d²``; ``w ← w − ηd``."""

    state_names = ("square", "step_square")

    def apply(self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, keep: Float) -> None:
        options = self.options
        numbers = (Float(options.rho), Float(1 - options.rho), Float(options.epsilon))
        _step(weights, gradient, self.state["square"], self.state["step_square"], rate, scale, keep, *numbers)


@fused
def _step(weights, gradient, square, step_square, rate, scale, keep, rho, rest, epsilon):
    for i in range(weights.size):
        g = scale * gradient[i]
        v = rho * square[i] + rest * g * g
        square[i] = v
        step = g * np.sqrt(step_square[i] + epsilon) / np.sqrt(v + epsilon)
        step_square[i] = rho * step_square[i] + rest * step * step
        weights[i] = weights[i] * keep - rate * step
