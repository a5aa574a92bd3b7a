"""The interface of an input that no file contains: it is computed for each batch."""

from __future__ import annotations

from typing import Protocol

import numpy as np

VALIDATION = -1
"""The epoch number of validation samples, which get the same values each time."""


class AddedInput(Protocol):
    """An input that is added to each batch as the last one, such as the noise of a generator.

    Its values depend on the position in the order of an epoch, so that they are the same for any number of workers.

    Attributes:
        name: Its name in descriptions.
        turns: The number of steps that are made with each batch, each time with other values.
    """

    @property
    def name(self) -> str: ...

    @property
    def turns(self) -> int: ...

    def draw(self, epoch: int, first: int, n: int) -> np.ndarray:
        """Values of `n` samples from position `first` on in the order of an epoch, shape (turns, n, …)."""
