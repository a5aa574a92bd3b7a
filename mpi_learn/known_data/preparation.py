"""Lists data sets, and writes one that is found by its name, from original files or from a simulator."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpi_learn.errors import ConfigurationError, DataError
from mpi_learn.known_data.cifar10 import CIFAR10
from mpi_learn.known_data.data_set import DataSet, FileArray, NamedArrays, Origin
from mpi_learn.known_data.digits import DIGITS
from mpi_learn.known_data.higgs import HIGGS
from mpi_learn.known_data.jets import JETS
from mpi_learn.known_data.mnist import MNIST
from mpi_learn.known_data.showers import SHOWERS
from mpi_learn.settings.paths import replacing
from mpi_learn.settings.suggestions import suggestion

DATA_SETS = {data_set.name: data_set for data_set in (DIGITS, MNIST, CIFAR10, JETS, HIGGS, SHOWERS)}
"""Name -> data set."""


def find_data_set(name: str) -> DataSet:
    """The data set of this name. Raises ConfigurationError if there is none."""
    if name not in DATA_SETS:
        raise ConfigurationError(f"there is no data set {name!r}", cure=suggestion(name, DATA_SETS))
    return DATA_SETS[name]


def prepare(
    name: str, to: Path, source: Path | str | None = None, *, simulate: int | None = None, **options: Any
) -> str:
    """Writes a data set as one or two HDF5 files.

    Args:
        name: One of `DATA_SETS`.
        to: The HDF5 file to write; a test set is written to the same folder, with ``_test`` in its name.
        source: A folder, file or URL with the original files; None downloads the published files.
        simulate: The number of samples to simulate instead.
        options: Options of the simulation: ``seed`` (default 0), and those of its function.

    Returns:
        A summary of the written files, and the lines of a training.yaml that read them.

    Raises:
        ConfigurationError: `name`, `to` or the options are invalid.
        DataError: Original files are missing or damaged, the download or writing failed.
    """
    data_set = find_data_set(name)
    if to.suffix not in (".h5", ".hdf5"):
        raise ConfigurationError("expected an HDF5 file", where=f"--to {to}", cure="choose a name that ends in .h5")
    if simulate is not None:
        if source is not None:
            raise ConfigurationError("simulated data have no original files", where="--from", cure="leave out --from")
        if simulate < 1:
            raise ConfigurationError(
                f"expected at least 1, found {simulate}", where="--simulate", cure="write --simulate 1000"
            )
        return _simulated(data_set, to, simulate, **options)
    if options:
        cure = "add --simulate N, or leave it out"
        raise ConfigurationError("this option is for simulations", where=f"--{next(iter(options))}", cure=cure)
    return _read(data_set, to, None if source is None else str(source))


def _read(found: DataSet, to: Path, place: str | None) -> str:
    """Writes the samples of the original files."""
    if place is not None and not found.originals:
        raise ConfigurationError(f"{found.name} are not read from files", where="--from", cure="leave out --from")
    try:
        parts = found.read(Origin(place, found.folder, found.originals, found.source))
    except DataError as error:
        if found.simulation is None:
            raise
        raise DataError(error.problem, where=error.where, cure=f"{error.cure}; or --simulate N") from error
    attributes = {
        "data_set": found.name,
        "description": found.summary,
        "source": found.source,
        "licence": found.licence,
        "simulated": bool(found.simulated_by),
        "simulated_by": found.simulated_by,
        "created_by": f"mpi-learn prepare {found.name}",
    }
    lines = []
    for part, arrays in parts.items():  # all files are read before the first one is written
        path = to.with_name(f"{to.stem}{part}{to.suffix}")
        write(path, len(next(iter(arrays.values()))), [arrays], found.arrays, attributes)
        lines.append(f"wrote {path}: {_shapes(arrays)}")
    training = found.training.format(file=to.name, test=to.with_name(f"{to.stem}_test{to.suffix}").name)
    return "\n".join([*lines, f"data: {training}"])


def _simulated(found: DataSet, to: Path, n: int, *, seed: int = 0, **options: Any) -> str:
    """Writes `n` simulated samples."""
    simulation = found.simulation
    if simulation is None:
        known = " and ".join(name for name, data_set in DATA_SETS.items() if data_set.simulation)
        raise ConfigurationError(f"{found.name} cannot be simulated", where="--simulate", cure=f"only {known} can")
    for option in options:
        if option not in simulation.options:
            known = ", ".join(f"--{option}" for option in ("seed", *simulation.options))
            problem = f"simulated {found.name} have no such option"
            raise ConfigurationError(problem, where=f"--{option}", cure=f"they have {known}")
    blocks = simulation.run(n, seed, **options)
    typed = {"simulate": n, "seed": seed} | options
    command = " ".join(f"--{option} {_as_typed(value)}" for option, value in typed.items())
    attributes = {
        "data_set": found.name,
        "description": simulation.summary,
        "source": simulation.method,
        "licence": "none: made by this program",
        "simulated": True,
        "simulated_by": simulation.program,
        "created_by": f"mpi-learn prepare {found.name} {command}",
    }
    if simulation.package:
        attributes["version"] = metadata.version(simulation.package)
    write(to, n, blocks, simulation.arrays, attributes, compress=True)
    shapes = ", ".join(f"{array.name} {array.shape}" for array in simulation.arrays)
    return f"wrote {to}: {n} simulated samples, {shapes}\ndata: {simulation.training.format(file=to.name)}"


def _as_typed(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _shapes(arrays: NamedArrays) -> str:
    return ", ".join(f"{name} {values.shape} {values.dtype}" for name, values in arrays.items())


CHUNK_BYTES = 2**20


def write(
    path: Path,
    n: int,
    blocks: Iterable[NamedArrays],
    arrays: tuple[FileArray, ...],
    attributes: Mapping[str, Any],
    *,
    compress: bool = False,
) -> None:
    """Writes `n` samples from blocks to a temporary file, and renames it when it is complete.

    Args:
        path: The HDF5 file. Its folder is created if it does not exist.
        n: The number of samples of all blocks together.
        blocks: Arrays by name, the same names in each block.
        arrays: Descriptions of the arrays, which are stored as attributes of the datasets.
        compress: Whether to compress; for arrays of mostly zeros, like padding or voxels without energy.

    Raises:
        DataError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside, h5py.File(aside, "w") as file:
            file.attrs.update(attributes)
            _fill(file, n, blocks, compress)
            for array in arrays:
                _describe(file[array.name], array)
    except OSError as error:
        raise DataError(
            f"cannot be written: {error}", where=str(path), cure="check the folder and its free space"
        ) from error


def _fill(file: h5py.File, n: int, blocks: Iterable[NamedArrays], compress: bool) -> None:
    first = 0
    for block in blocks:
        for name, values in block.items():
            if name not in file:
                _create(file, name, n, values, compress)
            file[name][first : first + len(values)] = values
        first += len(next(iter(block.values())))


def _create(file: h5py.File, name: str, n: int, values: np.ndarray, compress: bool) -> None:
    """Creates one dataset for all blocks."""
    shape = (n, *values.shape[1:])
    if not compress:
        file.create_dataset(name, shape, values.dtype)
        return
    rows = max(1, min(n, CHUNK_BYTES // max(1, values[0].nbytes)))
    chunks = (rows, *values.shape[1:])
    file.create_dataset(name, shape, values.dtype, chunks=chunks, compression="gzip", compression_opts=1, shuffle=True)


def _describe(dataset: h5py.Dataset, array: FileArray) -> None:
    dataset.attrs.update({"unit": array.unit, "meaning": array.meaning})
    if array.columns:
        dataset.attrs["columns"] = list(array.columns)


WIDTH = 120
INDENT = " " * 4


def listing(data_sets: Iterable[DataSet]) -> str:
    """All data sets with source, licence and arrays."""
    head = "mpi-learn prepare NAME --to FILE.h5 [--from FOLDER or URL | --simulate N]"
    return "\n\n".join([head, *map(_described, data_sets)])


def _described(data_set: DataSet) -> str:
    files = ", ".join(original.name for original in data_set.originals) or "none needed"
    lines = [f"{data_set.name}: {data_set.summary}", *_field("source", data_set.source)]
    lines += [*_field("licence", data_set.licence), *_field("files", files), *_arrays(data_set.arrays)]
    if (simulation := data_set.simulation) is not None:
        options = " ".join(f"[--{option} …]" for option in simulation.options)
        lines += [f"  --simulate N {options}: {simulation.summary}", *_field("method", simulation.method)]
        lines += _arrays(simulation.arrays)
    return "\n".join(lines)


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name}: {text}", WIDTH, initial_indent=INDENT, subsequent_indent=2 * INDENT)


def _arrays(arrays: tuple[FileArray, ...]) -> list[str]:
    fields = {f"{array.name} {array.shape} {array.dtype} [{array.unit}]": array.meaning for array in arrays}
    return [line for name, meaning in fields.items() for line in _field(name, meaning)]
