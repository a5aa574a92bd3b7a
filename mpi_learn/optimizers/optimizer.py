"""The interface of an optimizer: it changes a flat float32 vector in place."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")  # else colour codes go to stdout
from numba import njit

from mpi_learn.flat_layout import FlatLayout, aligned_empty

Float = np.float32

fused = njit(nogil=True, cache=True, error_model="numpy")
"""Compiles a loop over elements: one pass over memory, vectorised, without the interpreter's lock."""

summed = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
"""The same for a loop that adds up in float64, where the order of the terms does not matter."""


class Optimizer(ABC):
    """Makes a step of a gradient.

    Args:
        options: Its section of the configuration.
        layout: Which part of the vector is which array; only layer-wise methods look.
        rate: The learning rate of a 0-based step.

    Attributes:
        state: Name -> float32 vector of the length of the weights.
    """

    state_names: tuple[str, ...] = ()

    def __init__(self, options: Any, layout: FlatLayout, rate: Callable[[int], float]) -> None:
        self.options, self.layout, self.rate = options, layout, rate
        self._n_steps = np.zeros(1, np.int64)
        self.state = {name: aligned_empty(layout.size) for name in self.state_names}
        for vector in self.state.values():
            vector[:] = self.initial_state()

    def initial_state(self) -> float:
        """What the state starts from."""
        return 0.0

    @property
    def n_steps(self) -> int:
        """Steps made so far."""
        return int(self._n_steps[0])

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a checkpoint must hold: the very arrays, to be read or filled."""
        return {"n_steps": self._n_steps} | self.state

    def update(self, weights: np.ndarray, gradient: np.ndarray, scale: float = 1.0) -> None:
        """Makes one step in place.

        Args:
            weights: (n,) float32, changed.
            gradient: (n,) float32, unchanged.
            scale: The gradient is multiplied by this first: 1 / samples, where it belongs to a summed loss.
        """
        options = self.options
        if options.clip_value is not None:
            gradient = clipped(gradient, Float(scale), Float(options.clip_value))
            scale = 1.0
        if options.clip_norm is not None:
            norm = scale * float(np.sqrt(sum_of_squares(gradient)))
            scale *= min(1.0, options.clip_norm / max(norm, 1e-30))
        rate = self.rate(self.n_steps)
        self._n_steps += 1
        self.apply(weights, gradient, Float(rate), Float(scale), Float(1 - rate * options.weight_decay))

    @abstractmethod
    def apply(self, weights: np.ndarray, gradient: np.ndarray, rate: Float, scale: Float, keep: Float) -> None:
        """The method itself: changes `weights` and the state. `n_steps` counts this step already.

        Args:
            keep: What the weights are multiplied by first, for decoupled weight decay.
        """


@summed
def sum_of_squares(vector):
    """Of a float32 vector, summed in float64."""
    total = 0.0
    for i in range(vector.size):
        total += np.float64(vector[i]) * np.float64(vector[i])
    return total


@fused
def clipped(gradient, scale, bound):
    """``scale × gradient``, each element within ± `bound`; a new vector."""
    out = np.empty_like(gradient)
    for i in range(gradient.size):
        out[i] = min(max(scale * gradient[i], -bound), bound)
    return out
