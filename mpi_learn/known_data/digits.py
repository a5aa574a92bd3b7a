"""The handwritten digits of scikit-learn."""

from __future__ import annotations

import numpy as np

from mpi_learn.known_data.data_set import DataSet, FileArray, NamedArrays, Origin


def _read(_: Origin) -> dict[str, NamedArrays]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return {"": {"X": (digits.data / 16).astype(np.float32), "y": digits.target.astype(np.int64)}}


DIGITS = DataSet(
    name="digits",
    summary="1,797 handwritten digits of 8×8 pixels",
    source="scikit-learn's load_digits; a part of Optical Recognition of Handwritten Digits (Alpaydin & Kaynak), UCI",
    licence="CC BY 4.0 (UCI)",
    arrays=(
        FileArray("X", "(n, 64)", "float32", "0 (white) to 1", "pixels, row by row"),
        FileArray("y", "(n,)", "int64", "class 0 to 9", "the digit"),
    ),
    training="{{train: [{file}], validation_fraction: 0.2, features: X, labels: y}}",
    read=_read,
)
