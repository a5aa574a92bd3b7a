"""Checks that all workers of a training run the same code and have built the same model.

Each rank calls the user's function by itself. The ranks compare their arrays before the weights of the first worker are
broadcast, and what the models compute for a few samples after it. The values of the arrays may differ before the
broadcast: the function may draw initial weights from a generator without a seed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from mpi_learn.algorithms.allreduce import weighted_statistics
from mpi_learn.errors import DataError, ModelError
from mpi_learn.models.model import Model
from mpi_learn.models.network import ArrayKind
from mpi_learn.models.settings import Example
from mpi_learn.mpi.communicators import Communicator, agreed_errors, result_of_rank
from mpi_learn.settings.user_files import (
    SourceCode,
    fix,
    fixed,
    fixed_code,
    is_fixed,
    names_of_functions,
    read_source_code,
)
from mpi_learn.training.configuration import TrainingConfiguration

N_COMPARED = 64
"""Numbers that are compared of each sample and output."""
CHANGE = 0.01
"""The largest change of a weight for the comparison: layers may begin with zeros, which hide the layers before them."""
N_CHANGES = 1 << 16
N_IN_CHECKSUM = 1_000_000
OF_SPREAD, OF_SIZE = 1e-3, 1e-5
"""The tolerance in units of the spread of an output and of its largest magnitude. Hosts may have different processors,
whose results differ in the last digits."""
FACTOR_OF_FEW_BITS = 50.0
"""The factor of the tolerance if some arrays have 8 or 16 bits, or layers compute with 16 bits."""

CURE = (
    "build the same model on every rank: iterate over `sorted(…)` instead of a set of strings, draw constants from "
    "generators with a seed, and read nothing that differs between ranks or hosts"
)

Found = TypeVar("Found")


@dataclass(frozen=True)
class Mark:
    """What another model of the same function also has.

    Attributes:
        arrays: Its arrays.
        initial: A checksum of the trained arrays with which the numbers were computed.
        numbers: What it computes for an example, see `computed`.
        factor: The factor of the tolerance, see `are_close`.
    """

    arrays: Sequence[ArrayKind]
    initial: int
    numbers: Sequence[np.ndarray]
    factor: float

    @classmethod
    def of(cls, model: Model, example: Example, precision: str) -> Mark:
        """The mark of a model, in which layers compute in `precision`."""
        arrays = model.arrays()
        has_few_bits = precision != "float32" or any("8" in array.dtype or "16" in array.dtype for array in arrays)
        factor = FACTOR_OF_FEW_BITS if has_few_bits else 1.0
        return cls(arrays, _checksum_of_weights(model), computed(model, example), factor)

    def check(self, again: Model, example: Example) -> None:
        """Raises ModelError if the user's function has built another model when it was called again.

        What the models compute is compared if both have the same weights.
        """
        problem = ""
        if again.arrays() != list(self.arrays):
            problem = difference(self.arrays, again.arrays(), "in the first call", "now")
        elif _checksum_of_weights(again) == self.initial:
            numbers = computed(again, example)
            if not are_close(numbers, self.numbers, self.factor) and is_repeatable(again, example, numbers):
                problem = _difference_of_numbers(self.numbers, numbers)
        if problem:
            raise ModelError(f"the function built another model when it was called again: {problem}", cure=CURE)


def agree_on_arrays(comm: Communicator, model: Model | None, example: Example) -> None:
    """Compares the samples and the arrays of the models of all ranks. Collective over `comm`.

    Args:
        model: None on a rank without a model.
        example: The same samples on every rank.

    Raises:
        DataError, ModelError: They differ; the same on every rank.
    """
    arrays = None if model is None else model.arrays()
    samples = _checksum([*example.x, *example.y, *example.weights])
    marks = comm.allgather((samples, None if arrays is None else zlib.crc32(repr(arrays).encode())))
    if others := _others([samples for samples, _ in marks]):
        raise DataError(
            f"{_shown(others[1:])} read other samples than rank {others[0]}",
            where="data",
            cure="give all ranks the same files: a folder such as /tmp is another one on each host",
        )
    if others := _others([of_arrays for _, of_arrays in marks]):
        first, second = (comm.bcast(arrays, root=rank) or [] for rank in others[:2])
        raise ModelError(
            f"{_shown(others[1:])} built another model than rank {others[0]}: "
            + difference(first, second, f"on rank {others[0]}", f"on rank {others[1]}"),
            where="model",
            cure=CURE,
        )


def agree_on_outputs(comm: Communicator, model: Model | None, example: Example, first: int, precision: str) -> Mark:
    """Compares what the models of all ranks compute with the same weights and state. Collective over `comm`.

    Models that do not repeat their outputs are not compared.

    Args:
        model: None on a rank without a model.
        first: A rank with a model.
        precision: In which layers compute.

    Returns:
        The mark of the rank `first`.

    Raises:
        ModelError: They differ; the same on every rank.
    """
    mine: Mark | None = None
    with agreed_errors(comm):
        if model is not None:
            mine = Mark.of(model, example, precision)
    mark: Mark = comm.bcast(mine, root=first)
    is_same = comm.allgather(mine is None or are_close(mine.numbers, mark.numbers, mark.factor))
    if all(is_same):
        return mark
    # the ranks differ; this is an error only if each of them repeats its own numbers
    repeats = True
    with agreed_errors(comm):
        if model is not None and mine is not None:
            repeats = is_repeatable(model, example, mine.numbers)
    if not all(comm.allgather(repeats)):
        return mark
    others = [rank for rank, same in enumerate(is_same) if not same]
    theirs: Mark = comm.bcast(mine, root=others[0])
    raise ModelError(
        f"with the same weights, {_shown(others)} and rank {first} compute other outputs for the same samples: "
        + _difference_of_numbers(mark.numbers, theirs.numbers),
        where="model",
        cure=f"{CURE}; constants that are buffers, or weights that are not trained, are sent to all ranks",
    )


def agreed_statistics(comm: Communicator, model: Model, n_samples: int) -> np.ndarray:
    """The `weighted_statistics` of this rank, with the same length on all ranks. Collective over `comm`.

    Buffers that get their sizes in the first batch have no size yet on ranks without samples, which take the sizes of
    the others.

    Args:
        n_samples: Samples of this rank in the epoch.

    Raises:
        ModelError: Ranks with samples have other sizes; the same on every rank.
    """
    state = model.state
    mine = (model.arrays(), state.floats().size, state.integers().size) if n_samples else None
    found = comm.allgather(mine)
    if others := _others([repr(one) for one in found if one is not None]):
        ranks = [rank for rank, one in enumerate(found) if one is not None]
        first, second = ranks[others[0]], ranks[others[1]]
        raise ModelError(
            "buffers that get their sizes in the first batch have other sizes on other ranks: "
            + difference(found[first][0], found[second][0], f"on rank {first}", f"on rank {second}"),
            where="model",
            cure="call the module once in your function, before you return it",
        )
    with agreed_errors(comm):
        arrays, n_floats, n_integers = next(one for one in found if one is not None)
        if mine is None:
            model.resize(arrays)
            if state.floats().size != n_floats:  # on a master
                state.set_floats(np.zeros(n_floats, np.float32))
                state.set_integers(np.zeros(n_integers, np.int64))
        return weighted_statistics(state, float(n_samples))


def computed(model: Model, example: Example) -> list[np.ndarray]:
    """What `Model.probe` returns for an example, each reduced to (samples, k) numbers. The weights are as before.

    The model has slightly other weights meanwhile, see `CHANGE`.
    """
    before = model.weights.copy()
    changes = np.random.default_rng(0).uniform(-CHANGE, CHANGE, N_CHANGES).astype(np.float32)
    try:
        for place, layout in model.layout.by_model():
            model.weights[place] += np.resize(changes, layout.size)
        return list(map(_reduced, model.probe(example.x, example.y, example.weights)))
    finally:
        model.weights[:] = before


def is_repeatable(model: Model, example: Example, numbers: Sequence[np.ndarray]) -> bool:
    """Whether a model computes the same `numbers` again: not if it draws from a generator without a seed."""
    return are_close(computed(model, example), numbers, 1.0)


def are_close(one: Sequence[np.ndarray], other: Sequence[np.ndarray], factor: float) -> bool:
    """Whether two models compute the same, except for rounding.

    A quarter of the samples may differ: rounding can exchange the neighbours or experts that a layer selects.
    """
    return len(one) == len(other) and all(
        a.shape == b.shape and _n_different(a, b, factor) <= len(a) // 4 for a, b in zip(one, other, strict=True)
    )


def difference(one: Sequence[ArrayKind], other: Sequence[ArrayKind], of_one: str, of_other: str) -> str:
    """The first difference of two lists of arrays, in words."""
    for index, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return f"array {index} is {mine} {of_one}, and {theirs} {of_other}"
    return f"there are {len(one)} arrays {of_one}, and {len(other)} {of_other}"


def _n_different(one: np.ndarray, other: np.ndarray, factor: float) -> int:
    """The number of samples that differ."""
    finite = one[np.isfinite(one)]
    if not finite.size:
        return int((np.isfinite(other)).any(axis=1).sum())
    largest = float(np.abs(finite).max())
    spread = float(finite.std()) if one.size > 1 else largest
    tolerance = factor * (OF_SPREAD * spread + OF_SIZE * largest)
    return int((~np.isclose(one, other, rtol=0, atol=tolerance, equal_nan=True)).any(axis=1).sum())


def _difference_of_numbers(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> str:
    pairs = ((a.ravel(), b.ravel()) for a, b in zip(one, other, strict=False) if a.shape == b.shape)
    for mine, theirs in pairs:
        gap = np.nan_to_num(np.abs(mine - theirs), nan=np.inf)
        if gap.size and (at := int(gap.argmax())) >= 0 and gap[at] > 0:
            return f"{theirs[at]:.6g} instead of {mine[at]:.6g}"
    return "outputs of other shapes"


def _reduced(values: np.ndarray) -> np.ndarray:
    """(samples, k) numbers of an output; one row for a loss."""
    rows = np.asarray(values, np.float64).reshape(len(values) if np.ndim(values) else 1, -1)
    if rows.shape[1] <= N_COMPARED:
        return rows
    places = np.linspace(0, rows.shape[1] - 1, N_COMPARED).astype(int)
    return np.column_stack([rows[:, places], rows.mean(axis=1)])


def _checksum(arrays: Sequence[np.ndarray]) -> int:
    total = 0
    for array in arrays:
        content = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
        total = zlib.crc32(content, total)
    return total


def _checksum_of_weights(model: Model) -> int:
    return _checksum([model.weights[:: max(1, model.weights.size // N_IN_CHECKSUM)]])


def _others(marks: Sequence[Found | None]) -> list[int]:
    """The lowest rank with a mark, and all ranks with another one; empty if there are none. None is no mark."""
    ranks = [rank for rank, mark in enumerate(marks) if mark is not None]
    others = [rank for rank in ranks if marks[rank] != marks[ranks[0]]]
    return [ranks[0], *others] if others else []


def _shown(ranks: Sequence[int]) -> str:
    """Ranks in words."""
    few = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return f"rank {few}" if len(ranks) == 1 else f"ranks {few}"


@contextmanager
def same_code(configuration: TrainingConfiguration, comm: Communicator) -> Iterator[None]:
    """Inside the block, all ranks run the files of the user's functions as rank 0 has read them once.

    A search has read the files before: they are not read again, and files that it did not know keep their content until
    its end. Collective over `comm` at the beginning of the block.
    """

    def read() -> SourceCode:
        return read_source_code(names_of_functions(configuration.model_dump()), Path.cwd(), known=fixed_code())

    code = fixed_code().joined(result_of_rank(comm, read))
    if is_fixed():
        fix(code)
        yield
    else:
        with fixed(code):
            yield
