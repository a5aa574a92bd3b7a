"""What a configuration asks of one file: names looked up, columns stacked, the user's function applied."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpi_learn.data.configuration import Names, Transform
from mpi_learn.data.names import Request, look_up
from mpi_learn.data.samples import FEATURE_DTYPE, label_dtype
from mpi_learn.data.source import Source, reading
from mpi_learn.errors import DataError
from mpi_learn.functions import load_function

N_TRIED = 8
"""The user's function is tried on so many samples, to learn what it makes of them."""

NUMERIC = "biuf"


@dataclass(frozen=True)
class ArrayKind:
    """What one input or output looks like.

    Args:
        name: For messages: the dataset, or the columns it is stacked of.
        shape: The shape of one sample.
        dtype: As it comes out of the file or of the user's function.
        taken_dtype: As models take it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    taken_dtype: np.dtype = FEATURE_DTYPE

    @property
    def held_dtype(self) -> np.dtype:
        """As it is held in memory: as stored where that is smaller than what models take."""
        if self.dtype.kind == "b":
            return np.dtype(np.uint8)
        return self.dtype.newbyteorder("=") if self.dtype.itemsize < self.taken_dtype.itemsize else self.taken_dtype


class Reader:
    """The features, or the labels, of one file.

    Args:
        source: The file.
        wanted: What the configuration asks for; None is no array at all.
        key: The configuration's key, for messages: ``"data.features"``.

    Raises:
        DataError: A name is not there, an array is not numeric, or lengths differ.
    """

    def __init__(self, source: Source, wanted: Names | Transform | None, key: str) -> None:
        self.source, self.key, self.is_label = source, key, key.endswith("labels")
        self.function = load_function(wanted.function) if isinstance(wanted, Transform) else None
        names = wanted.names if isinstance(wanted, Transform) else wanted
        with reading(source):
            self.requests = self._looked_up(names)
            self.n_samples = self._agreed_length()
            self._check_columns()
        self.kinds = self._as_taken(self._checked(self._kinds() if self.function is None else self._tried()))

    def read(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        """Samples `start` to `stop` - 1: one array for each of `kinds`, of shape (stop - start, …)."""
        with reading(self.source):
            arrays = tuple(self._read(request, start, stop) for request in self.requests)
        return arrays if self.function is None else self._transformed(arrays, stop - start)

    def error(self, problem: str, name: str = "", *, cure: str = "") -> DataError:
        """A `DataError` that names the configuration's key, this file, and what of it."""
        return DataError(problem, where=": ".join(filter(None, (self.key, str(self.source.path), name))), cure=cure)

    def _looked_up(self, names: Names | None) -> list[Request]:
        if names is None:
            return []
        try:
            return look_up(names, self.source.names(), is_table=self.source.is_table, is_label=self.is_label)
        except DataError as error:
            raise self.error(
                f"{error.problem} in this {self.source.format} file", error.where, cure=error.cure
            ) from None

    def _agreed_length(self) -> int:
        lengths = {name: self.source.describe(name).n_samples for request in self.requests for name in request.names}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise self.error(f"the numbers of samples differ: {listed}", cure="name arrays with one entry a sample")
        return next(iter(lengths.values()), 0)

    def _check_columns(self) -> None:
        for request in self.requests:
            for name in request.names if request.is_stacked else ():
                shape = self.source.describe(name).shape
                if len(shape) > 1:
                    raise self.error(
                        f"columns must have one number or one row a sample, these have {shape}",
                        name,
                        cure="name it alone, as an input of its own",
                    )

    def _kinds(self) -> list[ArrayKind]:
        kinds = []
        for request in self.requests:
            parts = [self.source.describe(name) for name in request.names]
            self._checked([ArrayKind(n, p.shape, p.dtype) for n, p in zip(request.names, parts, strict=True)])
            width = sum(part.shape[0] if part.shape else 1 for part in parts)
            shape = (width,) if request.is_stacked else parts[0].shape
            kinds.append(ArrayKind(str(request), shape, np.result_type(*(part.dtype for part in parts))))
        return kinds

    def _tried(self) -> list[ArrayKind]:
        name = "; ".join(map(str, self.requests))
        arrays = self.read(0, min(N_TRIED, self.n_samples))
        return [ArrayKind(name, array.shape[1:], array.dtype) for array in arrays]

    def _as_taken(self, kinds: list[ArrayKind]) -> list[ArrayKind]:
        return [replace(kind, taken_dtype=label_dtype(kind.dtype)) for kind in kinds] if self.is_label else kinds

    def _checked(self, kinds: list[ArrayKind]) -> list[ArrayKind]:
        for kind in kinds:
            if kind.dtype.kind not in NUMERIC:
                raise self.error(
                    f"expected numbers, found {_spoken(kind.dtype)}",
                    kind.name,
                    cure="name numeric data, or make numbers of it with {names: …, function: file.py:function}",
                )
        return kinds

    def _read(self, request: Request, start: int, stop: int) -> np.ndarray:
        arrays = [self.source.read(name, start, stop) for name in request.names]
        return np.column_stack(arrays) if request.is_stacked else arrays[0]

    def _transformed(self, arrays: tuple[np.ndarray, ...], n: int) -> tuple[np.ndarray, ...]:
        made = self.function(*arrays)
        made = tuple(np.asarray(array) for array in (made if isinstance(made, list | tuple) else (made,)))
        for array in made:
            if array.shape[:1] != (n,):
                raise self.error(
                    f"the function made an array of shape {array.shape} of {n} samples",
                    getattr(self.function, "__name__", ""),
                    cure=f"return one entry for each sample: shape ({n}, …)",
                )
        return made


def _spoken(dtype: np.dtype) -> str:
    kinds = {"S": "text", "U": "text", "T": "text", "O": "objects", "V": "records", "c": "complex numbers"}
    return kinds.get(dtype.kind, str(dtype))
