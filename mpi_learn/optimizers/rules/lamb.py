"""LAMB: layer-wise adaptive rates on Adam (You et al. 2020, algorithm 2)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Float, Rule, Scale, scaled, summed


class LayerwiseAdaptiveMoments(Rule):
    """``r = m̂/(√v̂ + ε) + λw``; ``w ← w − η |w|/|r| · r``, layer by layer."""

    def state_names(self) -> tuple[str, ...]:
        return ("mean", "square")

    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        """Weight decay (λ) is part of the method, so `weight_factor` is not used."""
        options = self.options
        one_minus_betas = (Float(1 - options.beta_1), Float(1 - options.beta_2))
        corrections = (Float(1 / (1 - options.beta_1**t)), Float(1 / (1 - options.beta_2**t)))
        last = (Float(options.epsilon), Float(options.weight_decay))
        for start, end in pairwise(self.layout.bounds):
            part = slice(start, end)
            state = self.state["mean"][part], self.state["square"][part]
            _layer(weights[part], gradient[part], *state, rate, scale, *one_minus_betas, *corrections, *last)

    def apply_to_tensors(
        self, weights: Any, gradient: Any, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        options, g = self.options, scaled(gradient, scale)
        mean = self.state["mean"].lerp_(g, 1 - options.beta_1)
        square = self.state["square"].mul_(options.beta_2).addcmul_(g, g, value=1 - options.beta_2)
        root = (square / (1 - options.beta_2**t)).sqrt_().add_(options.epsilon)
        direction = (mean / (1 - options.beta_1**t)).div_(root).add_(weights, alpha=options.weight_decay)
        for start, end in pairwise(self.layout.bounds.tolist()):
            w, r = weights[start:end], direction[start:end]
            w_norm, r_norm = w.norm(), r.norm()
            ratio = (w_norm / r_norm).where((w_norm > 0) & (r_norm > 0), 1.0)
            w.sub_(r.mul_(ratio), alpha=rate)


@summed
def _direction(m, v, w, correction_1, correction_2, epsilon, decay):
    return m * correction_1 / (np.sqrt(v * correction_2) + epsilon) + decay * w


@summed
def _layer(
    weights, gradient, mean, square, rate, scale, one_minus_beta_1, one_minus_beta_2,
    correction_1, correction_2, epsilon, decay,
):  # fmt: skip
    w2, r2 = 0.0, 0.0
    for i in range(weights.size):
        g = scale * gradient[i]
        mean[i] += one_minus_beta_1 * (g - mean[i])
        square[i] += one_minus_beta_2 * (g * g - square[i])
        r = _direction(mean[i], square[i], weights[i], correction_1, correction_2, epsilon, decay)
        w2 += np.float64(weights[i]) * weights[i]
        r2 += np.float64(r) * r
    if w2 > 0 and r2 > 0:
        rate = np.float32(rate * np.sqrt(w2 / r2))
    for i in range(weights.size):
        weights[i] -= rate * _direction(mean[i], square[i], weights[i], correction_1, correction_2, epsilon, decay)
