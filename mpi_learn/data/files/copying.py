"""Copies samples from a file to arrays in memory, in pieces, and checks every value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mpi_learn.data.files.reader import ArrayKind, Reader

CHUNK_BYTES = 64 * 2**20
"""The size of a piece, so that reading needs little additional memory."""
MOST_BYTES = 2 * 2**30
"""The largest size of a piece that is increased to a whole row group or chunk, which is then decoded only once."""


def copy_samples(reader: Reader, targets: Sequence[np.ndarray], start: int, stop: int) -> None:
    """Reads samples `start` to `stop` - 1 of one file into `targets`, in pieces.

    Args:
        reader: The reader of the features, the labels or the weights.
        targets: One array for each of the reader's kinds, of length stop - start.

    Raises:
        DataError: The file cannot be read, shapes or dtypes differ from those of the reader, or a value is not finite
            or cannot be represented in the configured dtype of integers or booleans.
    """
    for first, end in pairwise(_bounds(reader, start, stop) if targets else []):
        for target, array, kind in zip(targets, reader.read(first, end), reader.kinds, strict=True):
            if array.shape != (end - first, *kind.shape):
                raise reader.error(
                    f"samples {first} to {end - 1} have the shape {array.shape}, not {(end - first, *kind.shape)}",
                    kind.name,
                    cure="every sample must have the same shape, and the file must not change while it is read",
                )
            here = target[first - start : end - start]
            with np.errstate(over="ignore", invalid="ignore"):  # the checks below name the sample, as a warning cannot
                here[...] = array
            _check_finite(reader, kind, array, here if here.dtype.kind == "f" else array, first)
            _check_integers(reader, kind, array, here, first)
            _check_dtype(reader, kind, array, first)


def _bounds(reader: Reader, start: int, stop: int) -> list[int]:
    """The bounds of the pieces. They do not divide row groups or chunks of equal size, up to `MOST_BYTES`."""
    n = reader.n_together if reader.n_together * reader.sample_bytes <= MOST_BYTES else 1
    at_once = n * max(1, CHUNK_BYTES // max(1, n * reader.sample_bytes))
    return [start, *range((start // at_once + 1) * at_once, stop, at_once), stop] if start < stop else []


def _check_dtype(reader: Reader, kind: ArrayKind, array: np.ndarray, start: int) -> None:
    if not np.can_cast(array.dtype, kind.dtype, "same_kind"):
        raise reader.error(
            f"the samples from {start} on have dtype {array.dtype}, those before {kind.dtype}",
            kind.name,
            cure="use one dtype for all samples",
        )


def _check_integers(reader: Reader, kind: ArrayKind, stored: np.ndarray, held: np.ndarray, start: int) -> None:
    """Raises `DataError` unless a configured dtype of integers or booleans can represent the stored values."""
    if held.dtype == stored.dtype or held.dtype.kind not in "biu":
        return
    if (wrong := np.argwhere(held != stored)).size:
        raise reader.error(
            f"sample {start + wrong[0][0]} is {stored[tuple(wrong[0])]}, which {held.dtype} cannot represent",
            kind.name,
            cure="write another data.dtype",
        )


def _check_finite(reader: Reader, kind: ArrayKind, stored: np.ndarray, held: np.ndarray, start: int) -> None:
    if held.dtype.kind != "f" or np.isfinite(held).all():
        return
    bad = np.argwhere(~np.isfinite(held))[0]
    place = f"sample {start + bad[0]}" + (f", element {tuple(map(int, bad[1:]))}" if len(bad) > 1 else "")
    raise reader.error(
        f"{place} is {stored[tuple(bad)]}, which is not a finite {held.dtype} value",
        kind.name,
        cure="remove such samples, or replace the value with {names: …, function: file.py:function}",
    )
