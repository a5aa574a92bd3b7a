"""LARS: layer-wise adaptive rates on momentum (You, Gitman & Ginsburg 2017, algorithm 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, fused, scaled, sum_of_squares


class LayerwiseAdaptiveRates(Rule):
    """``λ = η̂ |w|/(|g| + β|w| + ε)``; ``v ← μv + ηλ(g + βw)``; ``w ← w − v``, layer by layer.

    Arrays of one dimension (biases, scales) use λ = 1 and no decay. The paper's algorithm has no such exception; many
    implementations have it.
    """

    def state_names(self) -> tuple[str, ...]:
        return ("velocity",)

    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        """Weight decay (β) is part of the method, so `weight_factor` is not used."""
        options, bounds, shapes = self.options, self.layout.bounds, self.layout.shapes
        numbers = (Float(options.momentum), Float(options.weight_decay), Float(options.trust), Float(options.epsilon))
        for start, end, shape in zip(bounds[:-1], bounds[1:], shapes, strict=True):
            part = slice(start, end)
            velocity = self.state["velocity"][part]
            _layer(weights[part], gradient[part], velocity, rate, scale, *numbers, len(shape) > 1)

    def apply_to_tensors(
        self, weights: Any, gradient: Any, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        options, bounds = self.options, self.layout.bounds.tolist()
        g, velocity = scaled(gradient, scale), self.state["velocity"].mul_(self.options.momentum)
        for start, end, shape in zip(bounds[:-1], bounds[1:], self.layout.shapes, strict=True):
            w, step = weights[start:end], g[start:end]
            if len(shape) > 1:
                w_norm, g_norm = w.norm(), step.norm()
                trust = options.trust * w_norm / (g_norm + options.weight_decay * w_norm + options.epsilon)
                step.add_(w, alpha=options.weight_decay).mul_(trust.where((w_norm > 0) & (g_norm > 0), 1.0))
            velocity[start:end].add_(step, alpha=rate)
        weights.sub_(velocity)


@fused
def _layer(weights, gradient, velocity, rate, scale, momentum, decay, trust, epsilon, is_adapted):
    if is_adapted:
        w_norm, g_norm = np.sqrt(sum_of_squares(weights)), abs(scale) * np.sqrt(sum_of_squares(gradient))
        if w_norm > 0 and g_norm > 0:
            rate = np.float32(rate * trust * w_norm / (g_norm + decay * w_norm + epsilon))
    else:
        decay = np.float32(0)
    for i in range(weights.size):
        v = momentum * velocity[i] + rate * (scale * gradient[i] + decay * weights[i])
        velocity[i] = v
        weights[i] -= v
