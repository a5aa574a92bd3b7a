"""Adam (Kingma & Ba 2015, algorithm 1 in the form before section 2.1); with decoupled weight decay it is AdamW."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, fused

MANY_STEPS = 1e30
"""A number of steps after which the moments need no correction, βᵗ = 0."""


class AdaptiveMoments(Rule):
    """``m ← β₁m + (1−β₁)g``; ``v ← β₂v + (1−β₂)g²``; ``w ← w − η √(1−β₂ᵗ)/(1−β₁ᵗ) · m/(√v + ε)``."""

    _many_steps: Any = None  # MANY_STEPS on the device

    def state_names(self) -> tuple[str, ...]:
        return ("mean", "square")

    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        options = self.options
        alpha = self._corrected(float(rate), t)
        one_minus_betas = Float(1 - options.beta_1), Float(1 - options.beta_2)
        _step(
            weights, gradient, self.state["mean"], self.state["square"],
            Float(alpha), scale, weight_factor, *one_minus_betas, Float(options.epsilon),
        )  # fmt: skip

    def apply_to_tensors(
        self, weights: Any, gradient: Any, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        """PyTorch's kernel, which reads and writes each vector once, with the corrections of the moments in the rate.

        Its ε is added to the corrected root, ours to √v: after `MANY_STEPS`, the correction is 1 and both are equal.
        `torch.optim.adam.adam` would also group vectors and count steps, in 13 µs on the host.
        """
        import torch

        options = self.options
        if weight_factor != 1:
            weights.mul_(weight_factor)
        if self._many_steps is None:
            self._many_steps = weights.new_full((), MANY_STEPS)  # filled on the device: nothing is copied
        divisor = None if isinstance(scale, float) and scale == 1 else 1 / (weights.new_ones(()) * scale)
        torch._fused_adam_(
            [weights], [gradient], [self.state["mean"]], [self.state["square"]], [], [self._many_steps],
            grad_scale=divisor, amsgrad=False, maximize=False, weight_decay=0.0,
            beta1=options.beta_1, beta2=options.beta_2, lr=self._corrected(rate, t), eps=options.epsilon,
        )  # fmt: skip

    def _corrected(self, rate: float, t: int) -> float:
        """The rate with the corrections of both moments at step `t`, counted from 1."""
        return float(rate * math.sqrt(1 - self.options.beta_2**t) / (1 - self.options.beta_1**t))


@fused
def _step(weights, gradient, mean, square, alpha, scale, weight_factor, one_minus_beta_1, one_minus_beta_2, epsilon):
    for i in range(weights.size):
        g = scale * gradient[i]
        m = mean[i] + one_minus_beta_1 * (g - mean[i])
        v = square[i] + one_minus_beta_2 * (g * g - square[i])
        mean[i] = m
        square[i] = v
        weights[i] = weights[i] * weight_factor - alpha * m / (np.sqrt(v) + epsilon)
