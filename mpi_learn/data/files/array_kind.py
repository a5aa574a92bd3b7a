"""Shape, dtypes and name of one input, label or weight: as stored, as held in memory, as given to a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

Role = Literal["features", "labels", "weights"]


@dataclass(frozen=True)
class ArrayKind:
    """One input, label or weight.

    Attributes:
        name: For messages: the dataset, or the columns that are stacked.
        shape: The shape of one sample.
        dtype: As stored, or as returned by the user's function.
        role: What it is for.
        key: Its name for the model; empty if it has none.
        wanted: The configured dtype; None: by the rules of `dtype_for_model`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    role: Role
    key: str = ""
    wanted: np.dtype | None = None

    @property
    def taken_dtype(self) -> np.dtype:
        """As given to a model."""
        return self.wanted or dtype_for_model(self.dtype, self.role)

    @property
    def held_dtype(self) -> np.dtype:
        """As held in memory: as stored where that is smaller than what a model gets."""
        if self.dtype.kind == "b" and self.taken_dtype.kind != "b":
            return np.dtype(np.uint8)
        return self.dtype.newbyteorder("=") if self.dtype.itemsize < self.taken_dtype.itemsize else self.taken_dtype

    @property
    def held_bytes(self) -> int:
        """Memory of one sample."""
        return self.held_dtype.itemsize * math.prod(self.shape)


def dtype_for_model(stored: np.dtype, role: Role) -> np.dtype:
    """The dtype in which a model gets values of a stored dtype.

    Real numbers become float32. Integers and booleans stay what they are as features, and become int64 as labels.
    """
    if role == "weights" or stored.kind not in "biu":
        return np.dtype(np.float32)
    return np.dtype(np.int64) if role == "labels" else stored.newbyteorder("=")
