"""The base class of the update rules of MPI Learn, and how their loops over elements are compiled."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")  # numba otherwise writes colour codes to stdout
from numba import njit

from mpi_learn.flat_layout import FlatLayout, aligned_empty

if TYPE_CHECKING:  # PyTorch is optional
    import torch

Float = np.float32

Scale = Any
"""The factor of a gradient on a device: a float, or a tensor of one element on that device if the norm is clipped."""

fused = njit(nogil=True, cache=True, error_model="numpy")
"""Compiles a loop over elements: one pass over memory, vectorised, without holding the GIL."""

summed = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
"""The same for a loop with a float64 sum in which the order of the terms does not matter."""


class Rule(ABC):
    """One step of a published method on flat float32 vectors.

    Args:
        options: The method's section of the configuration.
        layout: The arrays in the vector; layer-wise methods use it.

    Attributes:
        state: Name -> float32 vector of the length of the weights; a tensor after `on_device`.
    """

    state: dict[str, Any]

    def __init__(self, options: Any, layout: FlatLayout) -> None:
        self.options, self.layout = options, layout
        self.state = {name: aligned_empty(layout.size) for name in self.state_names()}
        for vector in self.state.values():
            vector[:] = self.initial_state()

    @abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """The names of the vectors that these options need."""

    def initial_state(self) -> float:
        """The initial value of every state element."""
        return 0.0

    def part(self, first: int, end: int) -> tuple[slice, Rule]:
        """The place of the arrays `first` to `end` - 1 in a vector, and their own rule, which shares this state."""
        place = slice(int(self.layout.bounds[first]), int(self.layout.bounds[end]))
        part = copy(self)
        part.layout = FlatLayout(self.layout.shapes[first:end])
        part.state = {name: vector[place] for name, vector in self.state.items()}
        return place, part

    def on_device(self, device: torch.device) -> Rule:
        """The same rule for tensors: its state are copies on the device, which `apply_to_tensors` changes."""
        import torch

        rule = copy(self)
        rule.state = {name: torch.tensor(vector, device=device) for name, vector in self.state.items()}
        return rule

    @abstractmethod
    def apply(
        self, weights: np.ndarray, gradient: np.ndarray, t: int, rate: Float, scale: Float, weight_factor: Float
    ) -> None:
        """Changes `weights` and the state in place: `UpdateRule.apply` for arrays that all have a gradient."""

    @abstractmethod
    def apply_to_tensors(
        self, weights: torch.Tensor, gradient: torch.Tensor, t: int, rate: float, scale: Scale, weight_factor: float
    ) -> None:
        """The same for tensors on a device, after `on_device`. The content of `gradient` is lost.

        Every operation is queued on the device; none returns a number to the host.
        """


def scaled(gradient: torch.Tensor, scale: Scale) -> torch.Tensor:
    """The gradient on a device, multiplied in place."""
    return gradient if isinstance(scale, float) and scale == 1 else gradient.mul_(scale)


@summed
def sum_of_squares(vector):
    """The sum of squares of a float32 vector, in float64."""
    total = 0.0
    for i in range(vector.size):
        total += np.float64(vector[i]) * np.float64(vector[i])
    return total


@fused
def clipped(gradient, scale, bound):
    """``scale × gradient`` with every element within ± `bound`, in a new vector."""
    out = np.empty_like(gradient)
    for i in range(gradient.size):
        out[i] = min(max(scale * gradient[i], -bound), bound)
    return out
