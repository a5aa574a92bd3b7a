"""Adadelta (Zeiler 2012, algorithm 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, fused, scaled


class AdaptiveDelta(Rule):
    """``v ← ρv + (1−ρ)g²``; ``d = g √(s + ε)/√(v + ε)``; ``s ← ρs + (1−ρ)d²``; ``w ← w − ηd``."""

    def state_names(self) -> tuple[str, ...]:
        return ("square", "step_square")

    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        options = self.options
        numbers = (Float(options.rho), Float(1 - options.rho), Float(options.epsilon))
        _step(weights, gradient, self.state["square"], self.state["step_square"], rate, scale, weight_factor, *numbers)

    def apply_to_tensors(
        self, weights: Any, gradient: Any, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        rho, epsilon = self.options.rho, self.options.epsilon
        g, square, step_square = scaled(gradient, scale), self.state["square"], self.state["step_square"]
        square.mul_(rho).addcmul_(g, g, value=1 - rho)
        step = (step_square + epsilon).sqrt_().mul_(g).div_((square + epsilon).sqrt_())
        step_square.mul_(rho).addcmul_(step, step, value=1 - rho)
        weights.mul_(weight_factor).sub_(step, alpha=rate)


@fused
def _step(weights, gradient, square, step_square, rate, scale, weight_factor, rho, one_minus_rho, epsilon):
    for i in range(weights.size):
        g = scale * gradient[i]
        v = rho * square[i] + one_minus_rho * g * g
        square[i] = v
        step = g * np.sqrt(step_square[i] + epsilon) / np.sqrt(v + epsilon)
        step_square[i] = rho * step_square[i] + one_minus_rho * step * step
        weights[i] = weights[i] * weight_factor - rate * step
