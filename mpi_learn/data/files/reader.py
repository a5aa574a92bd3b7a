"""Finds and reads the arrays of a configuration in one file: stacks columns, applies the user's function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import numpy as np

from mpi_learn.data.configuration import DataConfiguration, Names, Transform
from mpi_learn.data.files.names import Column, Lookup, Request, names_in
from mpi_learn.data.formats.source import Jagged, Source, reading
from mpi_learn.errors import ConfigurationError, DataError
from mpi_learn.settings.user_code import errors_of_user_code, load_function

Requests = tuple[tuple[Request, ...], ...]
"""The arrays of features, labels and weights."""


def find_arrays(source: Source, configuration: DataConfiguration) -> Requests:
    """The arrays in a file that `configuration` requests.

    Raises:
        DataError: The file has no array of a name, or cannot be read.
    """
    x, y = map(_plain, (configuration.features, configuration.labels))
    weights = cast("Names | None", configuration.weights)
    with reading(source):
        known = source.names()
    return (
        _found(source, known, x, "features", [*names_in(y), *names_in(weights)]),
        _found(source, known, y, "labels"),
        _found(source, known, weights, "weights"),
    )


def check_same_arrays(found: Requests, source: Source, expected: Requests, first: Source) -> None:
    """Raises `DataError` unless groups and globs match the same names in `source` as in `first`, in any order."""
    for role, here, there in zip(ROLES, found, expected, strict=True):
        names, first_names = _columns(here), _columns(there)
        if names != first_names:
            only = [
                f"only {place.place} has {', '.join(sorted(map(str, more)))}"
                for place, more in ((first, first_names - names), (source, names - first_names))
                if more
            ]
            raise DataError(
                f"the names must match the same arrays in all files, but {'; '.join(only)}",
                where=f"data.{role}: {source.place}",
                cure="name the arrays that all files have",
            )


def _plain(wanted: Names | Transform | None) -> Names | None:
    """The names of the arrays to read, with or without a function."""
    return wanted.names if isinstance(wanted, Transform) else wanted


def _found(
    source: Source, known: list[str], names: Names | None, role: Role, left_out: Sequence[str] = ()
) -> tuple[Request, ...]:
    if names is None:
        return ()
    try:
        return tuple(Lookup(known, source.is_table, role != "features", left_out).requests(names))
    except DataError as error:
        raise DataError(
            f"{error.problem} in this {source.format} file",
            where=f"data.{role}: {source.place}: {error.where}",
            cure=error.cure,
        ) from None


def _columns(requests: tuple[Request, ...]) -> set[Column]:
    return {column for request in requests for column in request.columns}


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


N_TRIED = 8
"""The number of samples on which the user's function is tried, to determine the shapes and dtypes of its results."""


class Reader:
    """The features, the labels or the weights of one file.

    Args:
        requests: The arrays in the file.
        role: Whether the arrays are features, labels or weights.
        function: The user's function, as in the configuration; empty for none.
        dtypes: Key or name of an array -> its configured dtype.

    Raises:
        DataError: An array is not numeric, lengths differ, or the user's function fails.
    """

    def __init__(
        self,
        source: Source,
        requests: Sequence[Request],
        role: Role,
        function: str = "",
        dtypes: Mapping[str, np.dtype] = MappingProxyType({}),
    ) -> None:
        self.source, self.requests, self.role, self._dtypes = source, tuple(requests), role, dtypes
        self.config_key = f"data.{role}"
        self.function = self._load(function) if function else None
        self._names = list(dict.fromkeys(column.name for request in self.requests for column in request.columns))
        with reading(source):
            self._described = source.describe(self._names)
        self.n_samples = self._agreed_length()
        for request in self.requests:
            self._check_columns(request)
        self.kinds = tuple(
            map(self._kind, self.requests) if self.function is None else self._try_function(self.function)
        )

    @property
    def sample_bytes(self) -> int:
        """The memory to read one sample, in bytes: of its columns as stored or of `kinds`, whichever is larger."""
        columns = {column for request in self.requests for column in request.columns}
        sizes = [self._described[column.name].dtype.itemsize * math.prod(self._shape(column)) for column in columns]
        return max(sum(sizes), sum(kind.dtype.itemsize * math.prod(kind.shape) for kind in self.kinds))

    @cached_property
    def n_together(self) -> int:
        """`Source.n_together` for the arrays of this reader."""
        with reading(self.source):
            return self.source.n_together(self._names)

    def check_complete(self) -> None:
        """See `Source.check_complete`, for the arrays of this reader."""
        try:
            with reading(self.source):
                self.source.check_complete(self._names)
        except DataError as error:
            raise error.at(self.config_key) from error

    @property
    def why_not_streamable(self) -> str:
        """`Source.why_not_streamable` for the arrays of this reader."""
        return self.source.why_not_streamable(self._names)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        """Samples `start` to `stop` - 1: one array for each of `kinds`, of shape (stop - start, …)."""
        if self.function is None:
            return self._requested(start, stop)
        _, arrays = self._transformed(self.function, start, stop)
        return arrays

    def error(self, problem: str, name: str = "", *, cure: str) -> DataError:
        """A `DataError` with the configuration's key, this file, and `name` in it."""
        return DataError(problem, where=": ".join(filter(None, (self.config_key, self.source.place, name))), cure=cure)

    def _load(self, function: str) -> Callable[..., Any]:
        try:
            return load_function(function)
        except ConfigurationError as error:
            raise error.at(self.config_key) from None

    def _agreed_length(self) -> int:
        lengths = {name: description.n_samples for name, description in self._described.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise self.error(f"the numbers of samples differ: {listed}", cure="name arrays with one entry a sample")
        return next(iter(lengths.values()), 0)

    def _check_columns(self, request: Request) -> None:
        for column in request.columns:
            description = self._described[column.name]
            # a batch is one rectangular array, therefore rows of different lengths need a width, and only these
            if description.is_jagged and column.width is None:
                raise self.error(
                    "the number of values differs between samples",
                    column.name,
                    cure=f"write {column.name}[4] for the first four values, padded with zeros",
                )
            if column.width is not None and not description.is_jagged:
                raise self.error("all samples have the same shape", str(column), cure=f"write {column.name}")
            if column.width == 0:
                raise self.error(
                    "expected at least 1 value of each row, found 0",
                    str(column),
                    cure=f"write a larger number; {column.name}[1] is the first value of each row",
                )
            if request.is_stacked and len(description.shape) > 1 and not self._is_record(request):
                raise self.error(
                    f"a column has one number or one row per sample, this one has shape {description.shape}",
                    column.name,
                    cure="name it alone, as a separate input",
                )
        # columns of an input are put side by side, but fields of a record become the last axis of one array
        shapes = dict.fromkeys(self._shape(column) for column in request.columns)
        if self._is_record(request) and len(shapes) > 1:
            raise self.error(
                f"fields that form one input need the same shape, these have the shapes {', '.join(map(str, shapes))}",
                str(request),
                cure="name fields of another shape alone, as a separate input",
            )

    def _kind(self, request: Request) -> ArrayKind:
        shapes, dtypes = [], []
        for column in request.columns:
            dtype = self._described[column.name].dtype
            self._check_numeric(str(column), dtype)
            shapes.append(self._shape(column))
            dtypes.append(dtype)
        shape = shapes[0]
        if self._is_record(request):
            shape = (*shape, len(shapes))
        elif request.is_stacked:
            shape = (sum(map(math.prod, shapes)),)
        return self._kind_of(str(request), shape, np.result_type(*dtypes), request.key)

    def _shape(self, column: Column) -> tuple[int, ...]:
        """The shape of one sample of a column."""
        return self._described[column.name].shape if column.width is None else (column.width,)

    def _try_function(self, function: Callable[..., Any]) -> list[ArrayKind]:
        """The kinds of the arrays that the user's function returns for the first samples; none without samples."""
        if self.n_samples == 0:
            return []
        name = "; ".join(map(str, self.requests))
        keys, arrays = self._transformed(function, 0, min(N_TRIED, self.n_samples))
        for array in arrays:
            self._check_numeric(name, array.dtype)
        return [self._kind_of(name, array.shape[1:], array.dtype, key) for array, key in zip(arrays, keys, strict=True)]

    def _kind_of(self, name: str, shape: tuple[int, ...], dtype: np.dtype, key: str) -> ArrayKind:
        configured_dtype = self._dtypes.get(key) or self._dtypes.get(name) or self._dtypes.get(self.role)
        return ArrayKind(name, shape, dtype, self.role, key, configured_dtype)

    def _is_record(self, request: Request) -> bool:
        """Whether the columns are fields of one compound array: then they become its last axis."""
        records = {self._described[column.name].record for column in request.columns}
        return request.is_stacked and len(records) == 1 and records != {""}

    def _check_numeric(self, name: str, dtype: np.dtype) -> None:
        if found := non_real_content(dtype):
            raise self.error(
                f"expected real numbers, found {found}",
                name,
                cure="name numeric data, or convert it with {names: …, function: file.py:function}",
            )

    def _requested(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        """The arrays that the configuration requests, before the user's function."""
        with reading(self.source):
            found = self.source.read(self._names, start, stop)
        return tuple(_assembled(request, found, self._is_record(request)) for request in self.requests)

    def _transformed(
        self, function: Callable[..., Any], start: int, stop: int
    ) -> tuple[tuple[str, ...], tuple[np.ndarray, ...]]:
        """The keys and the arrays that the user's function returns; the keys are empty without a mapping."""
        arrays, n = self._requested(start, stop), stop - start
        where = f"{self.config_key}: {self.source.place}: {name_of(function)}"
        with errors_of_user_code("the function", where, DataError, "correct the function or the data that it receives"):
            made = function(*map(np.array, arrays))  # a copy: the function may change it, and the source may keep it
        keys, made = (tuple(made), tuple(made.values())) if isinstance(made, dict) else ((), made)
        made = tuple(np.asarray(array) for array in (made if isinstance(made, tuple) else (made,)))
        for array in made:
            if array.shape[:1] != (n,):
                raise self.error(
                    f"the function returned an array of shape {array.shape} for {n} samples",
                    name_of(function),
                    cure=f"return one entry for each sample: shape ({n}, …)",
                )
        return keys or ("",) * len(made), made


def name_of(function: Callable[..., Any]) -> str:
    """The name of the user's function in messages."""
    return getattr(function, "__name__", "")


def _assembled(request: Request, found: Mapping[str, np.ndarray | Jagged], is_record: bool) -> np.ndarray:
    arrays = [_regular(found[column.name], column.width) for column in request.columns]
    if is_record:
        return np.stack(arrays, axis=-1)
    return np.column_stack(arrays) if request.is_stacked else arrays[0]


def _regular(array: np.ndarray | Jagged, width: int | None) -> np.ndarray:
    return array.padded(width or 0) if isinstance(array, Jagged) else array
