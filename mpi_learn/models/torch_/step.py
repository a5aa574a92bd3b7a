"""The step vector of a PyTorch module: its gradient and sums of a batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from mpi_learn.devices.device_vector import DeviceVector, Vector
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.models.torch_.network import TorchNetwork
from mpi_learn.models.torch_.tensors import fetch, on_device, split


class StepVector:
    """Collects the gradients of a network after a backward pass.

    Args:
        layout: The layout of the network, with counts.
        n_sums: The number of sums behind the gradient.

    Attributes:
        stays_on_device: Whether the step vector is a `DeviceVector`.
        loss_scale: See `Model.scale_loss`; None without a scale.
    """

    loss_scale: Callable[[], float] | None = None

    def __init__(self, network: TorchNetwork, layout: FlatLayout, n_sums: int) -> None:
        self._network, self._size = network, layout.size
        self._values = aligned_empty(layout.size + n_sums)
        self._counts = layout.views(self._values)[-1]
        self._gradient = self._values[: network.layout.size]
        self._on_device = on_device(self._gradient)
        self._gradients = split(self._on_device, network.layout)
        self.stays_on_device, self._scale = False, 1.0

    def empty(self) -> Vector:
        """The step vector of a batch without samples."""
        self._values[:] = 0
        if not self.stays_on_device:
            return self._values
        self._on_device.zero_()
        return self._device_vector()

    def prepare(self) -> None:
        """Prepares the module for a forward and a backward pass in training mode."""
        self._network.refresh()
        for parameter in self._network.parameters:
            parameter.grad = None  # an optimizer of PyTorch or a callback may have left one
        if not self._network.module.training:
            self._network.module.train()

    def backward(self, loss: torch.Tensor) -> None:
        """The backward pass of a step, of the scaled loss."""
        self._scale = 1.0 if self.loss_scale is None else self.loss_scale()
        (loss if self._scale == 1 else self._scale * loss).backward()  # type: ignore[no-untyped-call]

    def filled(self, weight: float, sums: np.ndarray) -> Vector:
        """The step vector after a backward pass: the gradients times `weight`, which parameters have one, and the sums.

        The gradients are multiplied here and not the loss, so that hooks of the user, which may clip gradients, receive
        the gradient of the mean loss. With a scale they receive it times this scale, and the network refuses hooks of
        parameters. They are copied because a gradient that is None shows that the batch does not use the parameter; if
        they were views of the step vector, this would not be known.
        """
        self._values[self._size :] = sums
        weight /= self._scale
        if self.stays_on_device:
            return self._filled_on_device(weight)
        for index, (parameter, place) in enumerate(zip(self._network.parameters, self._gradients, strict=True)):
            gradient, parameter.grad = parameter.grad, None
            self._counts[index] = gradient is not None
            if gradient is None:
                place.zero_()
            else:
                torch.mul(gradient.to_dense() if gradient.is_sparse else gradient, weight, out=place)
        fetch(self._on_device, self._gradient)
        return self._values

    def _filled_on_device(self, weight: float) -> DeviceVector:
        """See `filled`. One operation for all arrays, because each one takes the host several microseconds."""
        gradients = []
        for parameter in self._network.parameters:
            gradients.append(parameter.grad)
            parameter.grad = None
        self._counts[:] = [gradient is not None for gradient in gradients]
        pairs = zip(gradients, self._gradients, strict=True)
        parts = [torch.zeros_like(place) if gradient is None else gradient for gradient, place in pairs]
        flat = [(part.to_dense() if part.is_sparse else part).reshape(-1) for part in parts]
        torch.cat(flat, out=self._on_device)
        return self._device_vector(weight)

    def _device_vector(self, factor: float = 1.0) -> DeviceVector:
        """The gradient on the device, and a view of the counts and sums on the host."""
        return DeviceVector(self._on_device, self._values[self._gradient.size :], factor)

    def close(self) -> None:
        """Releases the memory on the device."""
        self._gradients, self._on_device = [], torch.empty(0)
