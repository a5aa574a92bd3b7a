"""Adagrad (Duchi, Hazan & Singer 2011)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, fused, scaled


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

    def apply_to_tensors(
        self, weights: Any, gradient: Any, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        g, square = scaled(gradient, scale), self.state["square"]
        square.addcmul_(g, g)
        weights.mul_(weight_factor).addcdiv_(g, (square + self.options.epsilon).sqrt_(), value=-rate)


@fused
def _step(weights, gradient, square, rate, scale, weight_factor, epsilon):
    for i in range(weights.size):
        g = scale * gradient[i]
        v = square[i] + g * g
        square[i] = v
        weights[i] = weights[i] * weight_factor - rate * g / np.sqrt(v + epsilon)
