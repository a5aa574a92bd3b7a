"""A vector in two memories: weights or a gradient on a device, and the numbers that decide about a step on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # PyTorch is optional
    import torch


class DeviceVector:
    """A float32 vector whose first elements are on a device, and whose last ones are on the host.

    Of a step vector, the gradient is on the device, where it was computed and is used. The counts and sums behind it
    decide whether and how the step is made. The host knows them before the device has computed the gradient, so that no
    step waits for the device.

    A slice returns a part of one memory, or a `DeviceVector` if it begins with all elements on the device.

    Args:
        front: (n,) float32 on the device.
        tail: (m,) float32 on the host.
        factor: The elements of the vector are those of `front` times this. A gradient that is not added to others is
            not multiplied by the weight of its batch, by which it would be divided again.
    """

    def __init__(self, front: torch.Tensor, tail: np.ndarray, factor: float = 1.0) -> None:
        self.front, self.tail, self.factor = front, tail, factor
        self._n = front.numel()

    @property
    def size(self) -> int:
        """The number of elements in both memories."""
        return self._n + self.tail.size

    def __getitem__(self, place: slice) -> Any:
        start, stop, _ = place.indices(self.size)
        n = self._n
        if start >= n:
            return self.tail[start - n : stop - n]
        if stop <= n:
            return self.front if (start, stop) == (0, n) else self.front[start:stop]
        if start > 0:
            raise IndexError(f"elements {start} to {stop} are in two memories")
        return DeviceVector(self.front, self.tail[: stop - n], self.factor)

    def multiplied(self) -> torch.Tensor:
        """The elements on the device, multiplied by the factor in place, which is 1 from then on."""
        if self.factor != 1:
            self.front.mul_(self.factor)
            self.factor = 1.0
        return self.front


Vector = np.ndarray | DeviceVector
"""Weights or a step vector, on the host alone or also on a device."""
