"""RMSProp (Tieleman & Hinton 2012), optionally centered and with momentum."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, fused, scaled


class RootMeanSquarePropagation(Rule):
    """``v ← ρv + (1−ρ)g²``; ``w ← w − η g/√(v + ε)``; centered: ``v − m²`` with the mean gradient ``m``."""

    def state_names(self) -> tuple[str, ...]:
        return ("square", "mean", "velocity") if self._is_full() else ("square",)

    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        options, square = self.options, self.state["square"]
        rho, one_minus_rho, epsilon = Float(options.rho), Float(1 - options.rho), Float(options.epsilon)
        if self._is_full():
            _full(
                weights, gradient, square, self.state["mean"], self.state["velocity"],
                rate, scale, weight_factor, rho, one_minus_rho, Float(options.momentum), epsilon, options.centered,
            )  # fmt: skip
        else:
            _plain(weights, gradient, square, rate, scale, weight_factor, rho, one_minus_rho, epsilon)

    def apply_to_tensors(
        self, weights: Any, gradient: Any, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        rho, g, square = self.options.rho, scaled(gradient, scale), self.state["square"]
        variance = square.mul_(rho).addcmul_(g, g, value=1 - rho)
        weights.mul_(weight_factor)
        if not self._is_full():
            weights.addcdiv_(g, (variance + self.options.epsilon).sqrt_(), value=-rate)
            return
        if self.options.centered:
            mean = self.state["mean"].mul_(rho).add_(g, alpha=1 - rho)
            variance = square.addcmul(mean, mean, value=-1).clamp_(min=0)  # see `_full`
        velocity = self.state["velocity"].mul_(self.options.momentum)
        weights.sub_(velocity.addcdiv_(g, (variance + self.options.epsilon).sqrt_(), value=rate))

    def _is_full(self) -> bool:
        """Whether an option needs mean and velocity."""
        return bool(self.options.centered or self.options.momentum)


@fused
def _plain(weights, gradient, square, rate, scale, weight_factor, rho, one_minus_rho, epsilon):
    for i in range(weights.size):
        g = scale * gradient[i]
        v = rho * square[i] + one_minus_rho * g * g
        square[i] = v
        weights[i] = weights[i] * weight_factor - rate * g / np.sqrt(v + epsilon)


@fused
def _full(
    weights, gradient, square, mean, velocity, rate, scale, weight_factor, rho, one_minus_rho, momentum, epsilon,
    centered,
):  # fmt: skip
    for i in range(weights.size):
        g = scale * gradient[i]
        v = rho * square[i] + one_minus_rho * g * g
        square[i] = v
        if centered:
            m = rho * mean[i] + one_minus_rho * g
            mean[i] = m
            v = max(v - m * m, np.float32(0))  # rounding may make the variance negative
        step = momentum * velocity[i] + rate * g / np.sqrt(v + epsilon)
        velocity[i] = step
        weights[i] = weights[i] * weight_factor - step
