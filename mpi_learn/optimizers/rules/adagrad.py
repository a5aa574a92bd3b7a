"""Adagrad (Duchi, Hazan & Singer 2011)."""

from __future__ import annotations

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, fused


class AdaptiveGradient(Rule):
    """``v ← v + g²``; ``w ← w − η g/√(v + ε)``."""

    def state_names(self) -> tuple[str, ...]:
        return ("square",)

    def initial_state(self) -> float:
        """A positive first sum of squares keeps the first steps short."""
        return float(self.options.initial_accumulator_value)

    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        _step(weights, gradient, self.state["square"], rate, scale, weight_factor, Float(self.options.epsilon))


@fused
def _step(weights, gradient, square, rate, scale, weight_factor, epsilon):
    for i in range(weights.size):
        g = scale * gradient[i]
        v = square[i] + g * g
        square[i] = v
        weights[i] = weights[i] * weight_factor - rate * g / np.sqrt(v + epsilon)
