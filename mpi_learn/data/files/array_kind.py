"""Shape, dtypes and name of one input, label or weight: in the file, in memory, and for the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mpi_learn.errors import DataError

Role = Literal["features", "labels", "weights"]
ROLES: tuple[Role, ...] = get_args(Role)
NON_REAL_CONTENTS = {"S": "text", "U": "text", "T": "text", "O": "objects", "V": "records", "c": "complex numbers"}
"""Kind code of a dtype -> its content, for dtypes without real numbers."""


@dataclass(frozen=True)
class ArrayKind:
    """One input, label or weight.

    Attributes:
        name: The dataset, or the stacked columns, for messages.
        shape: The shape of one sample.
        dtype: The stored dtype, or that of the user's function.
        role: Whether it is an input, a label or a weight.
        key: Its name for the model; empty without a name.
        configured_dtype: The dtype in the configuration; None applies the rules of `dtype_for_model`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    role: Role
    key: str = ""
    configured_dtype: np.dtype | None = None

    @property
    def model_dtype(self) -> np.dtype:
        """The dtype for the model."""
        return self.configured_dtype or dtype_for_model(self.dtype, self.role)

    @property
    def memory_dtype(self) -> np.dtype:
        """The dtype in memory: the stored dtype if it is smaller and the dtype for the model has all of its values.

        Booleans that the model receives as numbers are uint8.
        """
        if self.dtype.kind == "b" and self.model_dtype.kind != "b":
            return np.dtype(np.uint8)
        is_smaller = self.dtype.itemsize < self.model_dtype.itemsize and np.can_cast(self.dtype, self.model_dtype)
        return self.dtype.newbyteorder("=") if is_smaller else self.model_dtype

    @property
    def memory_bytes(self) -> int:
        """Memory of one sample, in bytes."""
        return self.memory_dtype.itemsize * math.prod(self.shape)


def non_real_content(dtype: np.dtype) -> str:
    """The content of a dtype that does not hold real numbers, integers or booleans; empty for other dtypes."""
    return "" if dtype.kind in "biuf" else NON_REAL_CONTENTS.get(dtype.kind, str(dtype))


def dtype_for_model(stored: np.dtype, role: Role) -> np.dtype:
    """The default dtype for the model, from the stored dtype.

    Real numbers become float32. Integers and booleans do not change as features, and become int64 as labels.

    Raises:
        DataError: The dtype does not hold real numbers.
    """
    if found := non_real_content(stored):
        raise DataError(
            f"expected real numbers, found {found}",
            where=f"data.{role}",
            cure="give real and imaginary parts as two arrays" if stored.kind == "c" else "convert them to numbers",
        )
    if role == "weights" or stored.kind not in "biu":
        return np.dtype(np.float32)
    return np.dtype(np.int64) if role == "labels" else stored.newbyteorder("=")
