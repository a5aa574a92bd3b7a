"""An optimizer of PyTorch as an update of a flat vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.models.framework_optimizers import make_framework_optimizer
from mpi_learn.settings.component import Component
from mpi_learn.settings.user_code import errors_of_user_code

Parameters = list[torch.nn.Parameter]
StateKey = tuple[int, str]
"""(index, key) of a value in the state of the optimizer.

The index is that of a parameter, or the number of parameters plus the index of a parameter group.
"""


class TorchRule:
    """Applies an optimizer to the parameters of a module, which are views of the weights.

    See `UpdateRule`. PyTorch's optimizers create their state in the first step. The keys of the state are
    therefore those of a second optimizer after a step with copies of the parameters.

    Args:
        wanted: The optimizer; a function receives the parameters, then the arguments.
        parameters: The trainable parameters, views of the weights.
        layout: Layout of the parameters.

    Raises:
        ConfigurationError: The optimizer is not available here, or cannot be applied to the parameters.
    """

    has_final_weights = False

    def __init__(self, wanted: Component, parameters: Parameters, layout: FlatLayout) -> None:
        self.layout, self._parameters = layout, parameters
        if not wanted.is_custom:
            arguments = {"lr" if name == "learning_rate" else name: value for name, value in wanted.arguments.items()}
            wanted = Component.model_construct(name=wanted.name, **arguments)
        self._optimizer = make_framework_optimizer(wanted, torch.optim, parameters)
        self.has_schedule = isinstance(self._optimizer, torch.optim.Rprop)  # it reads the rate in its first step only
        rates = [float(group["lr"]) for group in self._optimizer.param_groups]
        self.learning_rate = max(rates)
        self._shares = [rate / (self.learning_rate or 1.0) for rate in rates]
        self._first_state = _state_after_a_step(wanted, parameters)
        name = type(self._optimizer).__name__
        self._arrays = {
            f"{name}.{index}.{key}": np.array(torch.as_tensor(value))
            for (index, key), value in self._first_state.items()
        }
        self._has_state = np.zeros(len(parameters), np.int64)  # of each parameter; a checkpoint can fill an array
        self._may_be_changed = False
        self._gradient = aligned_empty(layout.size)
        self._gradients = [torch.from_numpy(view) for view in layout.views(self._gradient)]

    @property
    def state(self) -> dict[str, np.ndarray]:
        if not self._may_be_changed:  # otherwise a checkpoint may have filled the arrays
            for (index, key), array in self._filled():
                array[...] = torch.as_tensor(_values_of(self._optimizer, self._parameters, index)[key])
        self._may_be_changed = True
        return self._arrays | {f"{type(self._optimizer).__name__}.has_state": self._has_state}

    def apply(
        self,
        weights: np.ndarray,
        gradient: np.ndarray,
        rate: np.float32,
        scale: np.float32,
        weight_factor: np.float32,
    ) -> None:
        if self._may_be_changed:
            self._fill()
        self._may_be_changed = False
        used = self.layout.used(gradient)
        np.multiply(gradient[: self.layout.size], scale, out=self._gradient)
        views = self.layout.views(weights)
        for parameter, part, view, is_used in zip(self._parameters, self._gradients, views, used, strict=True):
            parameter.grad = part if is_used else None
            if is_used and weight_factor != 1:
                view *= weight_factor
        for group, share in zip(self._optimizer.param_groups, self._shares, strict=True):
            group["lr"] = share * float(rate)
        self._optimizer.step()
        self._has_state[used] = 1

    def finalize(self, weights: np.ndarray) -> None:
        """Does nothing: an optimizer of PyTorch has no end of a training."""

    def _filled(self) -> list[tuple[StateKey, np.ndarray]]:
        """The keys that the optimizer has, and their arrays. The first update of a parameter creates its keys."""
        n, has = len(self._parameters), self._has_state
        pairs = zip(self._first_state, self._arrays.values(), strict=True)
        return [(key, array) for key, array in pairs if (has[key[0]] if key[0] < n else has.any())]

    def _fill(self) -> None:
        """Copies the arrays, which a checkpoint may have filled, into the optimizer."""
        for (index, key), array in self._filled():
            kind = type(self._first_state[index, key])
            value = torch.from_numpy(array.copy()) if issubclass(kind, torch.Tensor) else kind(array)
            _values_of(self._optimizer, self._parameters, index)[key] = value


def like(parameter: torch.nn.Parameter, values: torch.Tensor) -> torch.nn.Parameter:
    """A parameter with other values and the attributes of the user, such as ``no_decay``."""
    made = torch.nn.Parameter(values)
    vars(made).update(vars(parameter))
    return made


def _values_of(optimizer: torch.optim.Optimizer, parameters: Parameters, index: int) -> Any:
    """A part of the state of an optimizer: of a parameter or, with indices from `len(parameters)` on, of a group."""
    n = len(parameters)
    return optimizer.state[parameters[index]] if index < n else optimizer.param_groups[index - n]


def _state_after_a_step(wanted: Component, parameters: Parameters) -> dict[StateKey, Any]:
    """The values in the state of the optimizer `wanted` after a step with other parameters of the same shapes."""
    # the state appears with the first step; it is made on copies, because the step would change the model
    copies = [like(parameter, parameter.detach().clone()) for parameter in parameters]
    optimizer, where = make_framework_optimizer(wanted, torch.optim, copies), f"optimizer: {wanted.name}"
    before = [*({} for _ in copies), *map(dict, optimizer.param_groups)]
    for parameter in copies:
        parameter.grad = torch.zeros_like(parameter)
    with errors_of_user_code("a step with a gradient", where):
        optimizer.step()
    state: dict[StateKey, Any] = {}
    for index, previous in enumerate(before):
        for key, value in _values_of(optimizer, copies, index).items():
            is_group = index >= len(copies)
            is_setting = is_group and key in ("params", "lr")
            is_absent = value is None and not is_group
            # what the step has not replaced is an option, such as betas, which the configuration determines
            if is_setting or is_absent or value is previous.get(key):
                continue
            if not isinstance(value, torch.Tensor | int | float):
                raise ConfigurationError(
                    f"its state {key} is of type {type(value).__name__}, which a checkpoint cannot contain",
                    where=where,
                    cure="use an optimizer whose state consists of tensors and numbers",
                )
            state[index, key] = value
    return state
