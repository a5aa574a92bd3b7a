"""A rule whose state is on the device where the weights and the gradient are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Rule
from mpi_learn.optimizers.used_arrays import UsedArraysRule

if TYPE_CHECKING:  # PyTorch is optional
    import torch


class DeviceRule:
    """Applies a rule to vectors on a device. See `UpdateRule`.

    Args:
        rule: Its arrays on the host are those of a checkpoint. They are copied from the device when they are read, and
            back to it before the next step.
    """

    has_schedule = has_final_weights = False

    def __init__(self, rule: Rule, device: torch.device) -> None:
        self._of_host, self._on_device = UsedArraysRule(rule), UsedArraysRule(rule.on_device(device), is_on_device=True)
        self.layout, self.learning_rate = rule.layout, self._of_host.learning_rate
        self._may_be_changed = False

    @property
    def state(self) -> dict[str, np.ndarray]:
        mine, tensors = self._of_host.state, self._on_device.state
        if not self._may_be_changed:  # otherwise a checkpoint may have filled the arrays
            for name, array in mine.items():
                array[...] = _on_host(tensors[name])
        self._may_be_changed = True
        return mine

    def apply(self, weights: Any, gradient: Any, rate: Any, scale: Any, weight_factor: Any) -> None:
        if self._may_be_changed:
            mine, tensors = self._of_host.state, self._on_device.state
            for name, array in mine.items():
                _fill(tensors[name], array)
        self._may_be_changed = False
        self._on_device.apply(weights, gradient, rate, scale, weight_factor)

    def finalize(self, weights: Any) -> None:
        """Does nothing: the weights of the last step are the final ones."""


def _on_host(values: Any) -> np.ndarray:
    array: np.ndarray = values if isinstance(values, np.ndarray) else values.numpy(force=True)
    return array


def _fill(values: Any, array: np.ndarray) -> None:
    """Copies an array into the state on the device; numbers of steps are on the host there, too."""
    if isinstance(values, np.ndarray):
        values[...] = array
        return
    import torch

    values.copy_(torch.from_numpy(array))
