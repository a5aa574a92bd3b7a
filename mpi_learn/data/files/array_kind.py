"""What one input or output of a model looks like, and how it is stored, held and taken."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

FEATURE_DTYPE = np.dtype(np.float32)
"""What models take features as, whatever is stored."""


@dataclass(frozen=True)
class ArrayKind:
    """What one input or output looks like.

    Args:
        name: For messages: the dataset, or the columns it is stacked of.
        shape: The shape of one sample.
        dtype: As it comes out of the file or of the user's function.
        is_label: Whether it is an output.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    is_label: bool

    @property
    def taken_dtype(self) -> np.dtype:
        """As models take it."""
        return label_dtype(self.dtype) if self.is_label else FEATURE_DTYPE

    @property
    def held_dtype(self) -> np.dtype:
        """As it is held in memory: as stored where that is smaller than what models take."""
        if self.dtype.kind == "b":
            return np.dtype(np.uint8)
        return self.dtype.newbyteorder("=") if self.dtype.itemsize < self.taken_dtype.itemsize else self.taken_dtype

    @property
    def held_bytes(self) -> int:
        """Of one sample in memory."""
        return self.held_dtype.itemsize * math.prod(self.shape)


def label_dtype(stored: np.dtype) -> np.dtype:
    """What a model takes labels of a stored dtype as: int64 for whole numbers and booleans, else float32."""
    return np.dtype(np.int64 if stored.kind in "biu" else np.float32)
