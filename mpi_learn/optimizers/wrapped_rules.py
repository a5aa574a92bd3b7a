"""Update rules around others: on vectors of a GPU, and without arrays that no batch has used."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_learn.optimizers.rules.rule import Rule

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


class UsedArraysRule:
    """Applies a rule to the arrays that the batch of some rank has used. See `UpdateRule`.

    As with the optimizers of PyTorch and Keras, an array without a gradient keeps its values: weight decay and momentum
    do not change it, and the step does not count for the bias correction of its moments. Neighbouring arrays with equal
    numbers of steps are updated in one pass.

    Args:
        is_on_device: Whether the state of `rule` are tensors; then `apply` takes vectors on that device.
    """

    has_schedule = has_final_weights = False

    def __init__(self, rule: Rule, *, is_on_device: bool = False) -> None:
        self.rule, self.layout, self.learning_rate = rule, rule.layout, float(rule.options.learning_rate)
        self._n_steps = np.zeros(len(rule.layout.shapes), np.int64)
        self._is_on_device = is_on_device
        self._parts: dict[tuple[int, int], tuple[slice, Rule]] = {}
        self._used, self._runs = b"", _runs(self._n_steps)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """See `UpdateRule`. The names begin with the rule, so that no other optimizer continues from this state."""
        self._used = b""  # the caller may fill the numbers of steps
        arrays = {**self.rule.state, "n_steps_of_arrays": self._n_steps}
        return {f"{type(self.rule).__name__}.{name}": array for name, array in arrays.items()}

    def apply(self, weights: Any, gradient: Any, rate: Any, scale: Any, weight_factor: Any) -> None:
        used = self.layout.used(gradient)
        self._n_steps += used
        if used.tobytes() != self._used:  # otherwise the runs are those of the last step
            self._used, self._runs = used.tobytes(), _runs(self._n_steps * used)
        for run in self._runs:
            if run not in self._parts:
                self._parts[run] = self.rule.part(*run)
            place, part = self._parts[run]
            apply = part.apply_to_tensors if self._is_on_device else part.apply
            apply(weights[place], gradient[place], int(self._n_steps[run[0]]), rate, scale, weight_factor)

    def finalize(self, weights: np.ndarray) -> None:
        """Does nothing: the weights of the last step are the final ones."""


def _runs(numbers: np.ndarray) -> list[tuple[int, int]]:
    """First index and end of each run of equal numbers, without those of zeros."""
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    return [(first, end) for first, end in pairwise(edges) if numbers[first]]
